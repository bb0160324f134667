#!/usr/bin/env bash
# Drives the Tasks extension of `toolhost serve` and `toolhost mcp` with the
# client of its authors, @modelcontextprotocol/ext-tasks: a task that finishes,
# fails, crashes, asks, is subscribed to, is canceled, is resumed by a second
# client, and is resumed after the server was killed. Needs Go and npm.
set -euo pipefail

tasks=0.2.2  # @modelcontextprotocol/ext-tasks
client=2.4.0 # @modelcontextprotocol/client, which it wants

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. "$root/.ci/npm.sh"
install_npm tasks "@modelcontextprotocol/ext-tasks@$tasks" "@modelcontextprotocol/client@$client"
build_conformance "$work/plugins"
(cd "$root" && go build -o "$work/toolhost" ./cmd/toolhost)

{
	echo "plugins: [$work/plugins]"
	echo "grants:"
	for name in test greet slow failing protocol confirm multi; do
		echo "  $name: {clock: true, ask: true}"
	done
} >"$work/toolhost.yaml"

export XDG_CONFIG_HOME=$work/config # not the configuration of whoever runs this
for transport in http stdio; do
	MODULES=$modules timeout 1500 node "$root/.ci/tasks.mjs" "$transport" "$work/toolhost" "$work/toolhost.yaml" "$work/data-$transport"
done
echo "tasks: all is well"
