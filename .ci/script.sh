#!/usr/bin/env bash
# Builds the runtime of JavaScript and the plugin exec again if they are not what their
# build.sh noted that it built, or their sources have changed since, and compares them
# byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."

again() {
	cd "$1"
	if sha256sum --check --status "$2.sha256"; then
		echo "$1/$2 is what was built from its sources"
		return
	fi
	before=$(sha256sum "$2")
	./build.sh "${TMPDIR:-/tmp}/toolhost-script-tools"
	[ "$before" = "$(sha256sum "$2")" ] || { echo "$1/$2 is not what build.sh builds: check in what it has built now" >&2; exit 1; }
	git diff --exit-code "$2.sha256" || { echo "$1/$2.sha256 is out of date: check in what build.sh has written" >&2; exit 1; }
}

(again guest/js runtime.wasm)
(again examples/plugins/script exec.wasm)
