#!/usr/bin/env bash
# Builds runtime.wasm: QuickJS of npm's quickjs-wasi, and the shim. It takes node with npm
# and Python with venv, and installs the rest into a folder that it is given, or a new one.
#
#   build.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")"
tools=${1:-$(mktemp -d)}
mkdir -p "$tools"

[ -x "$tools/v/bin/python" ] || python3 -m venv "$tools/v"
"$tools/v/bin/pip" install -q ziglang==0.17.1 # a C compiler for WebAssembly, with its linker
(cd "$tools" && npm install --silent --no-save --no-audit --no-fund --ignore-scripts quickjs-wasi@3.6.2 binaryen@132.0.0)
zig() { "$tools/v/bin/python" -m ziglang "$@"; }
bin=$tools/node_modules/.bin
features="--enable-bulk-memory --enable-sign-ext --enable-mutable-globals --enable-nontrapping-float-to-int --enable-reference-types --enable-multivalue"
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT

# The shim shares memory, table and stack pointer with QuickJS, and has no data of its own.
zig cc --target=wasm32-freestanding -O2 -nostdlib -ffreestanding -fPIC -fvisibility=hidden -mbulk-memory -fno-sanitize=all -Wall -Werror -c src/shim.c -o "$t/shim.o"
zig wasm-ld --experimental-pic -shared --no-entry --strip-all --unresolved-symbols=import-dynamic "$t/shim.o" -o "$t/shim.wasm"
"$bin/wasm-dis" $features "$t/shim.wasm" -o "$t/shim.wat"
sed -i -e '/"__memory_base"/d; /"__table_base"/d; s/(import "env"/(import "quickjs"/' "$t/shim.wat"
if grep -q '(data ' "$t/shim.wat"; then echo "build.sh: the shim has data" >&2; exit 1; fi
"$bin/wasm-as" $features "$t/shim.wat" -o "$t/shim.wasm"
"$bin/wasm-dis" $features "$tools/node_modules/quickjs-wasi/quickjs.wasm" -o "$t/quickjs.wat"
sed -i 's/(import "wasi_snapshot_preview1" "clock_time_get"/(import "env" "host_clock"/' "$t/quickjs.wat"
"$bin/wasm-as" $features "$t/quickjs.wat" -o "$t/quickjs.wasm"
"$bin/wasm-merge" $features "$t/shim.wasm" env "$t/quickjs.wasm" quickjs --skip-export-conflicts -o "$t/merged.wasm"

# Only what a plugin exports is kept, and what that needs.
cat >"$t/keep.json" <<J
[{"name":"m","root":true,"export":"memory"},{"name":"i","root":true,"export":"th_initiali"},{"name":"d","root":true,"export":"toolhost_describe"},
 {"name":"v","root":true,"export":"toolhost_invoke"},{"name":"r","root":true,"export":"toolhost_resume"}]
J
"$bin/wasm-metadce" $features --graph-file "$t/keep.json" "$t/merged.wasm" -o "$t/kept.wasm" >/dev/null
"$bin/wasm-opt" $features -O2 --strip-debug --strip-producers "$t/kept.wasm" -o runtime.wasm
LC_ALL=C sed -i s/th_initiali/_initialize/ runtime.wasm
sha256sum runtime.wasm build.sh src/shim.c >runtime.wasm.sha256 # for .ci/script.sh
