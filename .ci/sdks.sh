#!/usr/bin/env bash
# Drives `toolhost serve` and `toolhost mcp` with the official SDKs of MCP, two
# releases each of Python's and TypeScript's, in both eras of the protocol: list,
# call, errors, progress, cancellation, large results, questions, background
# runs, tasks, streams that break, clients that give up, and sessions that end with calls in
# flight.
# The newer releases also drive three servers behind a balancer that sends each request to
# the next one. With a language as its argument, it drives the SDKs of that one only. Needs
# Go, npm, Python with venv, and PostgreSQL.
set -euo pipefail

only=${1:-}

python=(1.30.0 2.3.0)                                                    # mcp
typescript=(@modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0)

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
server= hosts=
cleanup() {
	for one in $server $hosts; do
		kill "$one" 2>/dev/null || true
		wait "$one" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap cleanup EXIT

[ "$only" != python ] || typescript=()
[ "$only" != typescript ] || python=()
if [ ${#typescript[@]} -gt 0 ]; then
	. "$root/.ci/npm.sh"
	install_npm sdks "${typescript[@]}"
	export MODULES=$modules
fi
. "$root/.ci/pip.sh"
for release in "${python[@]}"; do install_pip mcp mcp "$release"; done

(cd "$root" && go build -o "$work/" ./cmd/toolhost ./internal/fleet/balanced)
for plugin in echo fail primes spin clock; do
	(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
		-o "$work/plugins/$plugin.wasm" "./examples/plugins/$plugin")
done
(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w -X main.name=test' -trimpath \
	-o "$work/plugins/test.wasm" ./server/mcpapi/testdata/conformance/plugin)
cat >"$work/toolhost.yaml" <<-END
	plugins: [$work/plugins]
	limits: {fuel: 10000000000000}
	grants: {clock: {clock: true}, test: {clock: true, ask: true}}
END
export XDG_CONFIG_HOME=$work/config # not the configuration of whoever runs this
"$work/toolhost" compile --config "$work/toolhost.yaml" --data "$work/data"

"$work/toolhost" serve --listen 127.0.0.1:0 --config "$work/toolhost.yaml" --data "$work/data" >"$work/log" 2>&1 &
server=$!
for n in 1 2 3; do mkdir -p "$work/hosts/host-$n" && ln -s "$work/data/cache" "$work/hosts/host-$n/cache"; done # compiled once
"$work/balanced" "$work/toolhost" "$work/hosts" --config "$work/toolhost.yaml" >"$work/balanced.url" 2>"$work/hosts.log" &
hosts=$!
for _ in $(seq 600); do
	grep -q 'ready:' "$work/log" && [ -s "$work/balanced.url" ] && break
	sleep 0.2
done
balanced=$(sed 's/.* on //' "$work/balanced.url")/mcp
url=$(sed -n 's/.*listening on \(http.*\)/\1/p' "$work/log" | head -1)/mcp

fail() {
	echo "sdks: $*" >&2
	tail -n 30 "$work/log" "$work/hosts.log" >&2
	exit 1
}
drive() { # CLIENT ERA, over both transports
	timeout 900 "${client[@]}" http "$url" "$@" || fail "${client[*]} http $*"
	timeout 900 "${client[@]}" stdio "$work/toolhost" "$work/toolhost.yaml" "$work/data" "$@" || fail "${client[*]} stdio $*"
}

balanced() { # CLIENT ERA
	SEVERAL_HOSTS=yes timeout 900 "${client[@]}" http "$balanced" "$@" || fail "${client[*]} balanced $*"
}

for release in "${python[@]}"; do
	client=("${TMPDIR:-/tmp}/toolhost-python-mcp-$release/bin/python" "$root/.ci/sdk.py")
	drive legacy
	[ "${release%%.*}" = 1 ] && continue
	drive modern
	balanced legacy
	balanced modern
done
if [ ${#typescript[@]} -gt 0 ]; then
	client=(node "$root/.ci/sdk.mjs")
	drive 1 legacy
	drive 2 legacy
	drive 2 modern
	balanced 2 legacy
	balanced 2 modern
fi
echo "sdks: all is well"
