#!/usr/bin/env bash
# Drives `toolhost mcp` with a real MCP client, the Inspector's command line, in
# both eras of the protocol: lists the tools, calls some, spawns primes and
# checks it, stops spin. Needs Go and npm. The Inspector and the Node it asks
# for are installed once into a folder beside other temporary files.
set -euo pipefail

inspector=2.12.0 # @modelcontextprotocol/inspector
node=24.9.0      # the Inspector needs 22.19 or later

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${TMPDIR:-/tmp}/toolhost-inspector-$inspector-node-$node
work=$(mktemp -d)

fail() {
	echo "inspector: $*" >&2
	exit 1
}

cleanup() {
	mcpdo daemon stop >/dev/null 2>&1 || true
	rm -rf "$work"
}

install_inspector() {
	[ -e "$cache/installed" ] && return
	echo "inspector: installing the Inspector $inspector and Node $node"
	rm -rf "$cache"
	mkdir -p "$cache"
	npm install --prefix "$cache" --no-fund --no-audit --loglevel=error --save-exact \
		"node@$node" "@modelcontextprotocol/inspector@$inspector" >"$work/npm" 2>&1 ||
		fail "npm could not install the Inspector: $(cat "$work/npm")"
	touch "$cache/installed"
}

build() {
	(cd "$root" && go build -o "$work/toolhost" ./cmd/toolhost)
	for plugin in wordcount primes spin; do
		(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
			-o "$work/plugins/$plugin.wasm" "./examples/plugins/$plugin")
	done
}

# The Inspector's programs. They keep their state in a home of their own.
inspector() {
	HOME=$work/home MCP_INSPECTOR_SECRET_STORE=memory PATH=$cache/node_modules/node/bin:$PATH \
		"$cache/node_modules/.bin/mcp-inspector" --cli "$work/toolhost" mcp --plugins "$work/plugins" "$@" 2>"$work/stderr"
}
mcpdo() {
	HOME=$work/home MCP_INSPECTOR_SECRET_STORE=memory PATH=$cache/node_modules/node/bin:$PATH \
		"$cache/node_modules/.bin/mcpdo" --format json --connection "toolhost-$era" "$@" 2>"$work/stderr"
}

# ask sets $answer to what a command prints.
ask() {
	answer=$("$@") || fail "$* failed: $answer $(cat "$work/stderr")"
}

# expect checks $answer with an expression of JavaScript. In it, r is the whole
# answer and v the JSON in its first text. Given a third expression it prints
# that one's value.
expect() {
	local what=$1 check=$2 print=${3:-null}
	answer=$answer "$cache/node_modules/node/bin/node" -e '
		const all = JSON.parse(process.env.answer), r = all.result ?? all;
		let v = null;
		try { v = JSON.parse(r.content[0].text) } catch {}
		if (!('"$check"')) process.exit(1);
		const out = '"$print"';
		if (out !== null) console.log(out);
	' || fail "$era: $what: got $answer"
	[ "$print" != null ] || echo "ok   $era: $what"
}

tool() {
	ask mcpdo tools/call "$1" --tool-args-json "$2"
}

one_call_a_process() {
	ask inspector --protocol-era "$era" --method tools/list --strict --format json
	expect "the list has the plugins' tools and the agent's own" '
		["check_background", "primes", "spawn_background", "spin", "stop_background", "wordcount"].every(n => r.tools.some(t => t.name === n))'
	expect "each tool has all four annotations" '
		r.tools.every(t => ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"].every(h => typeof t.annotations[h] === "boolean"))'
	ask inspector --protocol-era "$era" --method tools/call --tool-name wordcount --tool-args-json '{"text":"a b\nc"}' --format json
	expect "wordcount counts" 'v.lines === 2 && v.words === 3 && v.bytes === 5 && JSON.stringify(r.structuredContent) === r.content[0].text'
	answer=$(inspector --protocol-era "$era" --method tools/call --tool-name wordcount --tool-args-json '{"txt":"a"}' --format json) &&
		fail "$era: wrong arguments were taken: $answer"
	expect "wrong arguments are a tool error that says which" 'r.isError && /missing: text/.test(r.content[0].text)'
}

one_session() {
	ask mcpdo connect --era "$era" -- "$work/toolhost" mcp --plugins "$work/plugins"
	expect "connected" "r.protocolEra === '$era'"

	tool spawn_background '{"tool":"primes","args":{"limit":20000000}}'
	expect "primes is spawned" '/^bg_/.test(v.task_id) && v.status === "queued"'
	local id
	id=$(expect "primes has an id" true v.task_id)
	tool check_background "{\"task_id\":\"$id\",\"wait_seconds\":50}"
	expect "primes has ended with its result" 'v.status === "succeeded" && v.result.count === 1270607 && v.progress.done === v.progress.total'

	tool spawn_background '{"tool":"spin","args":{}}'
	id=$(expect "spin has an id" true v.task_id)
	tool check_background "{\"task_id\":\"$id\",\"wait_seconds\":1}"
	expect "spin is running" '!v.done && v.status === "running"'
	tool stop_background "{\"task_id\":\"$id\",\"force\":true}"
	expect "spin is stopped" 'v.stopped && v.status === "canceled"'
	tool check_background '{"list":true}'
	expect "nothing is running" 'v.active === 0 && v.finished === 2'

	ask mcpdo disconnect
	for _ in $(seq 50); do
		ps -A -o args= | grep -q "^$work/toolhost" || break
		sleep 0.1
	done
	! ps -A -o args= | grep "^$work/toolhost" || fail "$era: the server outlives its client"
	echo "ok   $era: the server ends with its client"
}

era=none
trap cleanup EXIT
mkdir "$work/home"
install_inspector
build
for era in legacy modern; do
	one_call_a_process
	one_session
done
echo "inspector: all is well"
