#!/usr/bin/env bash
# Gets the programs of examples/programs, and plays their examples in the sandbox.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TOOLHOST_DATA=$work/data
go build -o "$work/toolhost" ./cmd/toolhost

examples/programs/get.sh "$work/plugins"
cp -r examples/programs/testdata "$work/plugins"
for program in "$work"/plugins/*.wasm; do "$work/toolhost" test "$program"; done
