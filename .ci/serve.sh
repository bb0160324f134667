# Sourced by the scripts that call a server over HTTP. It sets $root, and $work to a folder that
# is removed with the server when the script ends.

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
server=
cleanup() {
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap cleanup EXIT

# serve TOKEN CONFIG PLUGIN… builds the command and example plugins, and starts a server of them
# with more lines of configuration. It sets $url. The log is $work/log.
serve() {
	local token=$1 config=$2 plugin
	go build -C "$root" -o "$work/toolhost" ./cmd/toolhost
	for plugin in "${@:3}"; do
		(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
			-o "$work/plugins/$plugin.wasm" "./examples/plugins/$plugin")
	done
	printf 'plugins: [%s/plugins]\n%s\n' "$work" "$config" >"$work/toolhost.yaml"
	export XDG_CONFIG_HOME=$work/config # not the configuration of whoever runs this
	"$work/toolhost" compile --config "$work/toolhost.yaml" --data "$work/data"

	TOOLHOST_TOKEN=$token "$work/toolhost" serve --listen 127.0.0.1:0 --config "$work/toolhost.yaml" --data "$work/data" >"$work/log" 2>&1 &
	server=$!
	for _ in $(seq 600); do
		grep -q 'ready:' "$work/log" && break
		sleep 0.2
	done
	url=$(sed -n 's/.*listening on \(http.*\)/\1/p' "$work/log" | head -1)
}
