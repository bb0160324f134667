#!/usr/bin/env bash
# Builds exec.wasm: the runtime of guest/js, the prelude, and sucrase, which removes the
# types of TypeScript. It takes node with npm and Python, and installs the rest into a
# folder that it is given, or a new one.
#
#   build.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/src"
tools=${1:-$(mktemp -d)}
mkdir -p "$tools"

(cd "$tools" && npm install --silent --no-save --no-audit --no-fund --ignore-scripts quickjs-wasi@3.6.2 sucrase@3.35.1 esbuild@0.28.2)
bin=$tools/node_modules/.bin
runtime=../../../../guest/js/runtime.wasm
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT

# A loop of 65,536 rounds would be most of what a script in TypeScript costs.
word=$tools/node_modules/sucrase/dist/esm/parser/util/identifier.js
sed -i '/^for (let i = 128; i < 65536; i++) {$/,/^}$/c\IS_IDENTIFIER_CHAR.fill(1, 128);' "$word"
grep -q '^IS_IDENTIFIER_CHAR.fill(1, 128);$' "$word"
NODE_PATH=$tools/node_modules "$bin/esbuild" types.js --bundle --minify --format=iife --global-name=types --target=es2022 --log-level=warning --outfile="$t/types.js"
node bytecode.mjs "$(cd "$tools" && pwd)/node_modules" "$t/types.js" "$t/types.bin"
python3 pack.py "$runtime" manifest.json prelude.js "$t/types.bin" ../exec.wasm
cd ..
sha256sum exec.wasm build.sh src/* ../../../guest/js/runtime.wasm >exec.wasm.sha256 # for .ci/script.sh
