#!/usr/bin/env bash
# Builds exec.wasm: the runtime of guest/js, the prelude, and what few scripts need: sucrase,
# which removes the types of TypeScript, and the classes of guest/js/src/web.js. It takes node
# with npm and Python, and installs the rest into a folder that it is given, or a new one.
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
echo 'export const GenMapping = 0, maybeAddSegment = 0, toEncodedMap = 0;' >"$t/maps.js" # there are no source maps
web=../../../../guest/js/src/web.js
grep -q '^  // Requests\.$' $web # which need a network, and all behind them
{
	cat lazy.js
	echo 'export function web(random, Math, globalThis) {'
	sed '/^  \/\/ Requests\.$/,$d' $web
	echo 'return { URL, URLSearchParams, TextEncoder, TextDecoder, structuredClone: (value) => structuredClone(value), crypto: { randomUUID: crypto.randomUUID } };'
	echo '}'
} | NODE_PATH=$tools/node_modules "$bin/esbuild" --bundle "--alias:@jridgewell/gen-mapping=$t/maps.js" --minify --format=iife --global-name=lazy --target=es2022 --log-level=warning --outfile="$t/lazy.js"
sed -i '1s/^/(() => {/; $s/$/return lazy})()/' "$t/lazy.js"
for script in "$t/lazy" "$PWD/prelude"; do
	node bytecode.mjs "$(cd "$tools" && pwd)/node_modules" "$script.js" "$t/$(basename "$script").bin" # or each call pays for parsing it
done
python3 pack.py "$runtime" manifest.json "$t/prelude.bin" "$t/lazy.bin" ../exec.wasm
cd ..
sha256sum exec.wasm build.sh src/* ../../../guest/js/runtime.wasm ../../../guest/js/src/web.js >exec.wasm.sha256 # for .ci/script.sh
