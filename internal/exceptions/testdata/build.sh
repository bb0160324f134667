#!/usr/bin/env bash
# Builds the programs of this folder, in both forms of exceptions, and writes what they
# print in node. It takes clang 22 with wasi-libc, compiler-rt and libc++ for wasm32 (of
# Debian), Python with venv, and npm. The runtimes of setjmp and of C++ exceptions, which
# Debian's libraries lack, are those of wasi-libc and LLVM in the package ziglang.
set -euo pipefail
cd "$(dirname "$0")"
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT

python3 -m venv "$t/v"
"$t/v/bin/pip" install -q ziglang==0.17.1
(cd "$t" && npm install --silent --no-audit --no-fund node@24)
lib=$(echo "$t"/v/lib/python3*/site-packages/ziglang/lib)
mkdir -p "$t/include/bits"
cp "$lib/libc/include/wasm-wasi-musl/setjmp.h" "$t/include/"
cp "$lib/libc/include/wasm-wasi-musl/bits/setjmp.h" "$t/include/bits/"
printf '\t.tagtype %s i32\n\t.globl %s\n%s:\n' __c_longjmp __c_longjmp __c_longjmp >"$t/longjmp.s"
printf '\t.tagtype %s i32\n\t.globl %s\n%s:\n' __cpp_exception __cpp_exception __cpp_exception >"$t/exception.s"
cat >"$t/run.mjs" <<'J'
import { WASI } from "node:wasi"
import { readFileSync } from "node:fs"
const wasi = new WASI({ version: "preview1", args: ["program"] })
const module = new WebAssembly.Module(readFileSync(process.argv[2]))
wasi.start(new WebAssembly.Instance(module, wasi.getImportObject()))
J

for form in legacy standard; do
	flags="--target=wasm32-wasi -Wno-deprecated -Wno-unused-command-line-argument -Oz -mexception-handling -mllvm -wasm-use-legacy-eh=$([ $form = legacy ] && echo true || echo false)"
	clang-22 $flags -Wl,--strip-all -mllvm -wasm-enable-sjlj -I"$t/include" setjmp.c "$lib/libc/wasi/libc-top-half/musl/src/setjmp/wasm32/rt.c" "$t/longjmp.s" -o "setjmp-$form.wasm"

	objects=()
	for f in cxa_exception cxa_personality cxa_exception_storage cxa_aux_runtime; do
		clang++-22 $flags -fwasm-exceptions -std=c++23 -D_LIBCXXABI_BUILDING_LIBRARY -D_LIBCXXABI_HAS_NO_THREADS -D_LIBCPP_BUILDING_LIBRARY \
			-I"$lib/libcxxabi/include" -I"$lib/libcxxabi/src" -I"$lib/libunwind/include" -I"$lib/libcxx/src" -I"$lib/libcxx" \
			-c "$lib/libcxxabi/src/$f.cpp" -o "$t/$f.o"
		objects+=("$t/$f.o")
	done
	clang-22 $flags -fwasm-exceptions -fdeclspec -Wno-ignored-attributes -DNDEBUG -D__WASM_EXCEPTIONS__ -I"$lib/libunwind/include" -c "$lib/libunwind/src/Unwind-wasm.c" -o "$t/unwind.o"
	clang-22 $flags -c "$t/exception.s" -o "$t/exception.o"
	clang++-22 $flags -Wl,--strip-all -fwasm-exceptions cpp.cc "${objects[@]}" "$t/unwind.o" "$t/exception.o" -o "cpp-$form.wasm"

	for program in setjmp cpp; do
		"$t/node_modules/.bin/node" --no-warnings --experimental-wasm-exnref "$t/run.mjs" "$program-$form.wasm" >"$program-$form.txt"
	done
done
