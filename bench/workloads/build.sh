#!/bin/sh
# Builds the workloads from their sources, but for those in Go, which bench builds
# when it needs them. Needs Zig 0.17 (PyPI: ziglang) as
# $ZIG and AssemblyScript 0.28 (npm: assemblyscript) as $ASC. The built files are
# committed, and SHA256SUMS says what they are.
set -eu
cd "$(dirname "$0")"
ZIG=${ZIG:-zig} ASC=${ASC:-asc}
for f in c/*.c; do
	name=$(basename "$f" .c)
	$ZIG cc --target=wasm32-freestanding -O2 -mbulk-memory -nostdlib -Wl,--no-entry -s -o "$name.wasm" "$f"
done
$ZIG build-exe zig/zig.zig -target wasm32-freestanding -O ReleaseFast -fstrip -fno-entry -rdynamic -femit-bin=zig.wasm
$ASC assemblyscript/assemblyscript.ts -O3 --runtime incremental --use abort= -o assemblyscript.wasm
chmod 644 ./*.wasm
sha256sum ./*.wasm >SHA256SUMS
