#!/usr/bin/env bash
# Builds the plugin exec again if it is not what build.sh noted that it built, or its
# sources have changed since, and compares it byte for byte.
set -euo pipefail
cd "$(dirname "$0")/../examples/plugins/script"

if sha256sum --check --status exec.wasm.sha256; then
	echo "the plugin exec is what was built from its sources"
	exit
fi

before=$(sha256sum exec.wasm)
./build.sh "${TMPDIR:-/tmp}/toolhost-script-tools"
[ "$before" = "$(sha256sum exec.wasm)" ] || { echo "exec.wasm is not what build.sh builds: check in what it has built now" >&2; exit 1; }
git diff --exit-code exec.wasm.sha256 || { echo "exec.wasm.sha256 is out of date: check in what build.sh has written" >&2; exit 1; }
