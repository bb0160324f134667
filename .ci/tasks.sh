#!/usr/bin/env bash
# Drives the Tasks extension of `toolhost serve` and `toolhost mcp` with the
# client of its authors, @modelcontextprotocol/ext-tasks: a task that finishes,
# fails, crashes, asks, is subscribed to, is canceled, is resumed by a second
# client, and is resumed after the server was killed; and with three servers behind a
# balancer, one of which is killed. Needs Go, npm and PostgreSQL.
set -euo pipefail

tasks=0.2.2  # @modelcontextprotocol/ext-tasks
client=2.4.0 # @modelcontextprotocol/client, which it wants

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. "$root/.ci/npm.sh"
install_npm tasks "@modelcontextprotocol/ext-tasks@$tasks" "@modelcontextprotocol/client@$client"
build_conformance "$work/plugins"
(cd "$root" && go build -o "$work/" ./cmd/toolhost ./internal/fleet/balanced)

{
	echo "plugins: [$work/plugins]"
	echo "grants:"
	for name in test greet slow failing protocol confirm multi; do
		echo "  $name: {clock: true, ask: true}"
	done
} >"$work/toolhost.yaml"

export XDG_CONFIG_HOME=$work/config # not the configuration of whoever runs this
"$work/toolhost" compile --config "$work/toolhost.yaml" --data "$work/data"
drive() { # TRANSPORT
	local data=$work/data-$1
	for folder in "$data" "$data"/host-{1,2,3}; do mkdir -p "$folder" && ln -s "$work/data/cache" "$folder/cache"; done
	BALANCED=$work/balanced MODULES=$modules timeout 1500 node "$root/.ci/tasks.mjs" "$1" "$work/toolhost" "$work/toolhost.yaml" "$data" >"$work/$1.log" 2>&1
}
# They mostly wait.
for transport in http stdio balanced; do
	drive $transport &
	drives+=($!)
done
failed=
for transport in http stdio balanced; do
	wait "${drives[0]}" || failed="$failed $transport"
	drives=("${drives[@]:1}")
	cat "$work/$transport.log"
done
[ -z "$failed" ] || { echo "tasks:$failed failed" >&2; exit 1; }
echo "tasks: all is well"
