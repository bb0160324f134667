#!/usr/bin/env bash
# Builds the runtime of Python again if it is not what build.sh noted that it built, or
# its sources have changed since, and compares it byte for byte. Then it builds the
# plugins in examples/python, and plays their examples.
set -euo pipefail
cd "$(dirname "$0")/../guest/python"

if sha256sum --check --status python.wasm.gz.sha256; then
	echo "the runtime of Python is what was built from its sources"
else
	command -v clang-19 >/dev/null || (apt-get update && apt-get install -y --no-install-recommends clang-19 lld-19 llvm-19 libclang-rt-19-dev-wasm32 make) >/dev/null
	before=$(sha256sum python.wasm.gz)
	./build.sh "${TMPDIR:-/tmp}/toolhost-python"
	[ "$before" = "$(sha256sum python.wasm.gz)" ] || { echo "python.wasm.gz is not what build.sh builds: check in what it has built now" >&2; exit 1; }
	git diff --exit-code python.wasm.gz.sha256 || { echo "python.wasm.gz.sha256 is out of date: check in what build.sh has written" >&2; exit 1; }
fi

cd ../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TOOLHOST_DATA=$work/data
go build -o "$work/toolhost" ./cmd/toolhost
cp -r examples/python/*/ "$work"
cd "$work"
for project in */tool.py; do
	./toolhost build "${project%/*}"
	./toolhost test "${project%/*}"/*.wasm
done
