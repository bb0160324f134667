# Sourced by the scripts that run programs from npm. It installs them once, each
# set with a Node of its own, into a folder beside other temporary files.

node=24.9.0

# install_npm NAME PACKAGE@VERSION… sets $modules to where the packages are, and
# puts their Node first.
install_npm() {
	local name=$1 log
	shift
	local folder=${TMPDIR:-/tmp}/toolhost-npm-$name-node-$node
	for package in "$@"; do folder+=-${package##*@}; done
	modules=$folder/node_modules
	PATH=$modules/node/bin:$PATH
	[ -e "$folder/installed" ] && return
	echo "npm: installing $* and Node $node"
	rm -rf "$folder"
	mkdir -p "$folder"
	log=$folder/log
	if ! npm install --prefix "$folder" --no-fund --no-audit --loglevel=error --save-exact "node@$node" "$@" >"$log" 2>&1; then
		cat "$log" >&2
		echo "npm could not install $*" >&2
		return 1
	fi
	touch "$folder/installed"
}

# build_conformance FOLDER builds the plugins of the conformance suite.
build_conformance() {
	local source=$root/server/mcpapi/testdata/conformance name
	mkdir -p "$1"
	for name in test greet slow failing protocol confirm multi; do
		(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w -X main.name=$name" -trimpath \
			-o "$1/$name.wasm" "$source/plugin")
	done
	(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath -o "$1/header.wasm" "$source/header")
	cp "$source/header/header.toolhost.json" "$1"
}
