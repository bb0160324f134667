#!/usr/bin/env bash
# link.sh FOLDER: the last part of build.sh. It freezes the standard library and the SDK,
# and links them with what build.sh has compiled in FOLDER.
set -euo pipefail
export LC_ALL=C TZ=UTC PYTHONHASHSEED=0
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
w=$PWD python=$PWD/Python-3.13.5
rm -rf out
mkdir out

sysconfig=$(find build -name '_sysconfigdata__wasi_wasm32-wasi.py' | head -1)
sed "s|$w|/build|g" "$sysconfig" >out/_sysconfigdata__wasi_wasm32-wasi.py
native/python -s "$here/freeze.py" "$python/Lib" out/_sysconfigdata__wasi_wasm32-wasi.py "$here/toolhost" out

cc="clang-19 --target=wasm32-wasi --sysroot=$w/sysroot/usr -mbulk-memory -mnontrapping-fptoint -ffile-prefix-map=$w=/build -Ibuild -I$python/Include"
$cc -std=c23 -O0 --embed-dir=out -c out/frozen.c -o out/frozen.o
$cc -std=c11 -O2 -Wall -Werror -Wno-unused-parameter -c "$here/shim.c" -o out/shim.o
$cc -mexec-model=reactor out/shim.o out/frozen.o build/libpython3.13.a build/Modules/expat/libexpat.a \
	build/Modules/_decimal/libmpdec/libmpdec.a build/Modules/_hacl/libHacl_Hash_SHA2.a zlib/libz.a \
	-lm -lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks -ldl \
	-Wl,--wrap=clock_nanosleep,--wrap=__wasi_fd_filestat_get,--wrap=__wasi_fd_seek,--wrap=__wasi_fd_tell,--wrap=__wasi_clock_time_get \
	-Wl,-z,stack-size=1048576,--stack-first,--strip-all -o out/python.wasm
gzip -9 -n <out/python.wasm >"$here/../python.wasm.gz"
cd "$here/.."
sha256sum python.wasm.gz build.sh src/*.* src/toolhost/*.py >python.wasm.gz.sha256 # for .ci/python.sh
