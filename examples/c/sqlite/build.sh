#!/usr/bin/env bash
# Builds sqlite.wasm in this folder, from the plugin and SQLite's amalgamation, which the
# Go module of a driver carries: the checksum below pins it. It takes Go, and clang with
# lld, wasi-libc and its runtime for WebAssembly.
#
#   build.sh [FOLDER]    keeps what it has compiled of SQLite in the folder
set -euo pipefail
cd "$(dirname "$0")"
module=github.com/mattn/go-sqlite3@v1.14.53 # SQLite 3.54.1
sum='h1:mnTM0owzUMrKuLo+0w51NUiB0ir2Fo7kFXlPt/l3BGs='

work=${1:-$(mktemp -d)}
mkdir -p "$work"
clang=$(command -v clang-19 || command -v clang) || { echo "build.sh: no clang: on Debian, apt-get install clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32" >&2; exit 1; }
found=$(cd "$work" && GOFLAGS=-mod=mod GOWORK=off go mod download -json "$module")
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}$/\1/p" <<<"$found"; }
[ "$(field Sum)" = "$sum" ] || { echo "build.sh: $module has the checksum $(field Sum), want $sum" >&2; exit 1; }

# With bulk memory clang 14 has no other model for errno, which has no threads here.
target="--target=wasm32-wasi -O2 -mbulk-memory -mnontrapping-fptoint -ftls-model=local-exec"
# No threads, no WAL and no mapped memory: WASI has none of them. Temporary tables are in memory.
options="-DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_WAL -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_SHARED_CACHE -DSQLITE_OMIT_DEPRECATED
	-DSQLITE_MAX_MMAP_SIZE=0 -DSQLITE_TEMP_STORE=3 -DSQLITE_DQS=0 -DSQLITE_MAX_EXPR_DEPTH=200
	-DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_MATH_FUNCTIONS -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_MMAN"
cp -f "$(field Dir)/sqlite3-binding.h" "$work/sqlite3.h"
made="$work/sqlite3-$(sha256sum <<<"$sum $target $options $("$clang" --version)" | cut -c1-16).o"
if [ ! -f "$made" ]; then
	"$clang" $target $options -Wno-everything -c "$(field Dir)/sqlite3-binding.c" -o "$made.new"
	mv "$made.new" "$made"
fi
"$clang" $target -std=gnu11 -Wall -Wextra -Werror -I../../../guest/c -I"$work" -mexec-model=reactor tool.c files.c "$made" \
	-lm -lwasi-emulated-getpid -lwasi-emulated-mman -Wl,-z,stack-size=262144,--stack-first,--strip-all -o sqlite.wasm
