#!/usr/bin/env bash
# Builds python.wasm.gz: CPython as a reactor of toolhost_v1, with a frozen standard
# library and toolhost.py. It takes Debian's clang-19, lld-19, llvm-19 and
# libclang-rt-19-dev-wasm32, make, apt-get and gzip; it fetches the
# sources of CPython and zlib and wasi-libc from Debian trixie with a list of its own, which
# the system does not see, into a folder that it is given, or a new one.
#
#   build.sh [FOLDER]
set -euo pipefail
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=1749600000 PYTHONHASHSEED=0
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:=$(mktemp -d)}"
w=$(cd "$1" && pwd)
cd "$w"

python=Python-3.13.5 zlib=zlib-1.3.1
sums='
93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640  python3.13_3.13.5.orig.tar.xz
60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb  zlib_1.3.dfsg+really1.3.1.orig.tar.gz
b7716260051d289248b7667f81fa2792c125d888ff51da3fa09c6272cc0bd11d  wasi-libc_0.0~git20241209.574b88d-2_all.deb'

# The sources, with a list of packages in this folder.
if ! sha256sum --check --quiet --status <<<"${sums#?}"; then
	mkdir -p apt/lists/partial apt/cache/archives/partial
	for type in deb deb-src; do
		echo "$type [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main"
	done >apt/sources.list
	apt="apt-get -q -o Dir::Etc::sourcelist=$w/apt/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$w/apt/lists -o Dir::Cache=$w/apt/cache -o APT::Sandbox::User=root"
	$apt update
	$apt source --download-only --tar-only python3.13 zlib
	$apt download wasi-libc
	sha256sum --check <<<"${sums#?}"
fi
rm -rf "$python" "$zlib" zlib sysroot native build out
tar xf python3.13_*.orig.tar.xz
tar xf zlib_*.orig.tar.gz
mv "$zlib" zlib
dpkg -x wasi-libc_*.deb sysroot

jobs=-j$(nproc)

# A Python of this very version for this machine: it compiles the standard library, so
# that the bytecode does not depend on the Python that happens to be installed.
mkdir native
(cd native
	CC=clang-19 CFLAGS=-w ../$python/configure --disable-test-modules --with-ensurepip=no >configure.log 2>&1
	make $jobs OPT="-DNDEBUG -O1" python pybuilddir.txt >make.log 2>&1) || { tail native/*.log >&2; exit 1; }

# CPython for WASI. No path of this folder gets into it.
target="--target=wasm32-wasi --sysroot=$w/sysroot/usr -mbulk-memory -mnontrapping-fptoint"
export CC="clang-19 $target -ffile-prefix-map=$w=/build" CPP="clang-19 $target -E" AR=llvm-ar-19 RANLIB=llvm-ranlib-19 READELF=true
export PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH= HOSTRUNNER=true
mkdir build
(cd build
	export CFLAGS="-w -g0" CONFIG_SITE=$w/$python/Tools/wasm/config.site-wasm32-wasi
	../$python/configure --host=wasm32-wasi --build="$(../$python/config.guess)" --with-build-python="$w/native/python" \
		--disable-test-modules --with-ensurepip=no --prefix=/usr --with-pkg-config=no >configure.log 2>&1
	cp "$here/src/Setup.local" Modules/Setup.local
	make Makefile >make.log 2>&1
	make $jobs OPT="-DNDEBUG -O2" libpython3.13.a Modules/expat/libexpat.a Modules/_decimal/libmpdec/libmpdec.a Modules/_hacl/libHacl_Hash_SHA2.a >>make.log 2>&1
	make OPT="-DNDEBUG -O2" pybuilddir.txt >>make.log 2>&1) || { tail build/*.log >&2; exit 1; }
(cd zlib
	$CC -O2 -c adler32.c compress.c crc32.c deflate.c infback.c inffast.c inflate.c inftrees.c trees.c uncompr.c zutil.c
	$AR crDs libz.a ./*.o)

exec "$here/src/link.sh" "$w"
