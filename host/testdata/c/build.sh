#!/bin/sh
# Builds the plugin in C that the tests of this package call, with Clang and LLD
# 14 or newer (Debian: clang-14 lld-14). The built file is committed.
set -eu
cd "$(dirname "$0")"
${CC:-clang-14} --target=wasm32 -O2 -Wall -Wextra -nostdlib -Wl,--no-entry -Wl,--strip-all -o digits.wasm digits.c
chmod 644 digits.wasm
