#!/usr/bin/env bash
# Builds the fixture and the examples of the SDKs in other languages, plays the examples,
# and runs the contract vectors. What has not changed since the last run is not compiled
# again. A language whose toolchain is missing is left out, but not in CI.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TOOLHOST_DATA=$work/data
go build -o "$work/toolhost" ./cmd/toolhost
vectors= # the modules of all languages

# skipped leaves a language out, and says what is missing. CI fails there.
skipped() {
	if [ "${CI:-}" = true ]; then echo "missing: $*" >&2; exit 1; fi
	echo "skipped: $*"
}

# project makes, builds and tests what toolhost new makes in a language.
project() { (cd "$work" && ./toolhost new "$1" "words_$1" && ./toolhost build "words_$1" && ./toolhost test "words_$1/words_$1.wasm"); }

rust() {
	local target=wasm32-wasip1
	export PATH="$PATH:$HOME/.cargo/bin"
	if ! command -v cargo >/dev/null; then
		skipped "no Rust toolchain: install it as https://rustup.rs says, then: rustup target add $target"
		return
	fi
	if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
		if [ "${CI:-}" != true ]; then
			skipped "no Rust standard library for $target: rustup target add $target"
			return
		fi
		rustup target add "$target"
	fi

	export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${TMPDIR:-/tmp}/toolhost-rust-target}"
	(cd guest/rust && cargo test --quiet --locked -p toolhost && cargo build --quiet --locked --release --target "$target")
	"$work/toolhost" test "$CARGO_TARGET_DIR/$target/release/examples.wasm"
	TOOLHOST_RUST_EXAMPLES="$CARGO_TARGET_DIR/$target/release/examples.wasm" go test ./cmd/toolhost -count=1 -run '^TestScripts$/^crash_rust$'
	project rust
	TOOLHOST_TEST=full RUST_PAGE=1 go test ./cmd/toolhost -count=1 -run '^TestRustPage$'
	vectors+=:$CARGO_TARGET_DIR/$target/release/vectors.wasm
}

c() {
	local packages="clang lld wasi-libc libclang-rt-dev-wasm32"
	if ! "$work/toolhost" build guest/c/examples -o "$work/examples.wasm"; then
		if [ "${CI:-}" != true ]; then
			skipped "C was not built. If the compiler is missing: apt-get install $packages"
			return
		fi
		(apt-get update && apt-get install -y --no-install-recommends $packages) >/dev/null
		"$work/toolhost" build guest/c/examples -o "$work/examples.wasm"
	fi

	"$work/toolhost" test "$work/examples.wasm"
	project c
	TOOLHOST_TEST=full go test ./cmd/toolhost -count=1 -run '^Test(CPage|MistakesInC)$' # which are skipped without a compiler
	"$work/toolhost" build guest/c/vectors -o "$work/vectors.wasm"
	vectors+=:$work/vectors.wasm
}

zig() {
	local tools=${TMPDIR:-/tmp}/toolhost-zig
	if [ ! -x "$tools/bin/python" ] && ! python3 -m venv "$tools"; then
		skipped "no Python with venv, to install Zig with: apt-get install python3-venv"
		return
	fi
	"$tools/bin/pip" install --quiet ziglang==0.17.1
	(cd examples/zig && "$tools/bin/python" -m ziglang build-exe tool.zig -target wasm32-freestanding -O ReleaseSmall -fno-entry -rdynamic --stack 65536 \
		--cache-dir "$tools/cache" --global-cache-dir "$tools/cache" -femit-bin="$work/words.wasm")
	"$work/toolhost" test "$work/words.wasm"
	rm "$work/words.wasm"
}

assemblyscript() {
	if ! command -v npm >/dev/null; then
		skipped "no npm, to install AssemblyScript with: apt-get install npm"
		return
	fi
	local tools=${TMPDIR:-/tmp}/toolhost-assemblyscript
	mkdir -p "$tools"
	cp examples/assemblyscript/* "$tools"
	(cd "$tools" && npm install --silent --no-audit --no-fund --ignore-scripts && npm run --silent build)
	"$work/toolhost" test "$tools/words.wasm"
}

# typescript checks the types of the project that toolhost new makes, of the example, and of
# the sources on the pages.
typescript() {
	if ! command -v npm >/dev/null; then
		skipped "no npm, to install TypeScript with: apt-get install npm"
		return
	fi
	. .ci/npm.sh
	install_npm generators typescript@5.9.3 # as generators.sh
	project typescript
	cp examples/javascript/tool.ts "$work/words_typescript/example.ts"
	awk -v to="$work/words_typescript" '
		/^```$/ { file = "" }
		file { print > file }
		/^`[a-z_]+\/tool.ts`/ { named = 1 }
		/^```/ && named { named = 0; file = to "/page" ++pages ".ts" }
	' docs/javascript.md docs/deploying.md
	[ -e "$work/words_typescript/page2.ts" ] || { echo "no source of a tool on the pages" >&2; exit 1; }
	(cd "$work/words_typescript" && node "$modules/typescript/bin/tsc")
}

# sqlite builds the plugin of examples/c/sqlite. c has installed the compiler.
sqlite() {
	if ! examples/c/sqlite/build.sh "${TMPDIR:-/tmp}/toolhost-sqlite"; then
		skipped "examples/c/sqlite, which was not built"
		return
	fi
	"$work/toolhost" test examples/c/sqlite/sqlite.wasm
	go test ./examples/c -count=1
}

rust
c
zig
assemblyscript
typescript
sqlite
[ -z "$vectors" ] || TOOLHOST_VECTORS=${vectors#:} go test ./host -count=1 -run 'TestVectors$'
