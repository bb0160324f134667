#!/usr/bin/env bash
# Makes the release in two clones, and compares: the archives, the checksums and what is
# said to be in the binaries are the same. With RELEASE=all that is all of it, twice.
# Otherwise, as in the full check, the first clone builds for one processor of each system, and
# the second for this machine: linking takes a minute for each. Then it uses what is in the archive of
# this machine: the commit in the binary, manual pages, completion scripts, and a server
# in a root file system with nothing but the program, as a user who is not root.
# Needs Go, Python, and to be root for the last.
set -euo pipefail

goreleaser=github.com/goreleaser/goreleaser/v2@v2.15.1
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
server=
cleanup() {
	[ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server"; } || true
	rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "release: $*" >&2; exit 1; }

# make makes the release for some systems and processors in a clone of its own.
make() {
	local clone=$work/$1 goos=$2 goarch=$3
	git clone --quiet "$root" "$clone"
	sed -e "s/goos: \[.*/goos: [$goos]/" -e "s/goarch: \[.*/goarch: [$goarch]/" "$clone/.goreleaser.yaml" >"$work/$1.yaml"
	(cd "$clone" && "$work/goreleaser" release --snapshot --clean --config "$work/$1.yaml") >"$work/log" 2>&1 || { cat "$work/log"; fail "goreleaser failed"; }
	local sums=$clone/dist/SHA256SUMS expected
	expected=$((2 * $(wc -w <<<"${goos//,/ }") * $(wc -w <<<"${goarch//,/ }")))
	[ "$(wc -l <"$sums")" = $expected ] || fail "expected $expected lines, for each archive and what is in it: $(cat "$sums")"
}

GOBIN=$work go install "$goreleaser"
if [ "${RELEASE:-}" = all ]; then
	make clone-1 linux,darwin,windows amd64,arm64
	make clone-2 linux,darwin,windows amd64,arm64
else
	make clone-1 linux,darwin,windows "$(go env GOHOSTARCH)"
	make clone-2 "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)"
fi
cd "$work/clone-1/dist"
different=$(grep -Fxv -f SHA256SUMS ../../clone-2/dist/SHA256SUMS || true)
[ -z "$different" ] || fail "two builds of one commit differ: $different"
sha256sum --check --quiet SHA256SUMS

mkdir "$work/unpacked"
tar xzf toolhost_*_"$(go env GOHOSTOS)_$(go env GOHOSTARCH)".tar.gz -C "$work/unpacked"
cd "$work/unpacked"
commit=$(git -C "$work/clone-1" rev-parse HEAD)
./toolhost version >"$work/version"
grep "^commit   $commit of " "$work/version" || fail "the binary does not know its commit"
! grep -q '^modified' "$work/version" || fail "the binary was built from other files than those of the commit"
for part in LICENSE CHANGELOG.md licenses/python licenses/javascript toolhost.service toolhost.yaml man/toolhost-serve.1; do
	[ -s "$part" ] || fail "the archive has no $part"
done
python3 - "$work"/clone-1/dist/*_linux_amd64.cdx.json <<'PYTHON'
import json, sys
names = {c["name"]: c["version"] for c in json.load(open(sys.argv[1]))["components"]}
for name in "github.com/tetratelabs/wazero", "cpython", "quickjs-wasi", "std":
    assert names.get(name), f"{name} is not in the list: {sorted(names)}"
print(f"release: {len(names)} components are listed")
PYTHON

bash -n completions/toolhost.bash
for shell in zsh fish; do
	command -v $shell >/dev/null || (apt-get update && apt-get install -y --no-install-recommends $shell) >/dev/null 2>&1 || echo "release: $shell cannot be installed: its script is not checked"
	! command -v $shell >/dev/null || $shell -n completions/toolhost.$shell
done
if command -v man >/dev/null; then
	for page in man/*; do
		warnings=$(LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
		[ -z "$warnings" ] || fail "$page: $warnings"
	done
fi

[ "$(go env GOHOSTOS) $(id -u)" = "linux 0" ] || { echo "release: all is well, but for what only root can check"; exit 0; }
mkdir -p "$work/root/data/tmp"
install -m 0555 toolhost "$work/root/toolhost"
chown -R 65532:65532 "$work/root/data"
chmod -R 0700 "$work/root/data"
chmod 0755 "$work" "$work/root"
inside=(env -i PATH="$PATH" TOOLHOST_DATA=/data TMPDIR=/data/tmp chroot --userspec=65532:65532 "$work/root" /toolhost)
"${inside[@]}" serve 2>"$work/server.log" &
server=$!
for _ in $(seq 300); do
	"${inside[@]}" health >/dev/null 2>&1 && break
	sleep 0.2
done
"${inside[@]}" health || { cat "$work/server.log"; fail "the server is not ready"; }
"${inside[@]}" call add '{"a":1,"b":2}' --log-level error || fail "no tool can be called"
[ "$(ls "$work/root")" = "data
toolhost" ] || fail "the server wrote outside of /data: $(ls "$work/root")"
echo "release: all is well"
