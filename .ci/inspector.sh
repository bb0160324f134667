#!/usr/bin/env bash
# Drives `toolhost mcp` and `toolhost serve` with a real MCP client, the
# Inspector's command line, in both eras of the protocol: lists the tools, calls
# some, spawns primes and checks it, stops spin, and, where there are tasks, lets
# the Inspector drive one; and three servers behind a balancer that sends each request to
# the next one. Needs Go, npm and PostgreSQL.
set -euo pipefail

inspector=2.12.0 # @modelcontextprotocol/inspector

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)

fail() {
	echo "inspector: $*" >&2
	exit 1
}

cleanup() {
	mcpdo daemon stop >/dev/null 2>&1 || true
	for one in $server $hosts; do
		kill "$one" 2>/dev/null || true
		wait "$one" 2>/dev/null || true
	done
	rm -rf "$work"
}

build() {
	(cd "$root" && go build -o "$work/" ./cmd/toolhost ./internal/fleet/balanced)
	for plugin in wordcount primes spin clock; do
		(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
			-o "$work/plugins/$plugin.wasm" "./examples/plugins/$plugin")
	done
	# As much fuel as there may be: spin has to go on until a client stops it,
	# however long that one takes.
	cat >"$work/toolhost.yaml" <<-END
		plugins: [$work/plugins]
		limits: {fuel: 10000000000000}
		grants: {clock: {clock: true}}
	END
	# A command without options, which the Inspector would take for its own.
	printf '#!/bin/sh\nexec %q mcp --config %q --data %q\n' "$work/toolhost" "$work/toolhost.yaml" "$work/data" >"$work/mcp"
	chmod +x "$work/mcp"
	export XDG_CONFIG_HOME=$work/config # not the configuration of whoever runs this
	"$work/toolhost" compile --config "$work/toolhost.yaml" --data "$work/data"
}

# The Inspector's programs, for the server at the other end of $target. They keep
# their state in a home of their own. A server may take minutes to start.
patience=300000
inspector() {
	HOME=$work/home MCP_INSPECTOR_SECRET_STORE=memory \
		"$modules/.bin/mcp-inspector" --cli "${target[@]}" --connect-timeout $patience "$@" 2>"$work/stderr"
}
mcpdo() {
	HOME=$work/home MCP_INSPECTOR_SECRET_STORE=memory \
		"$modules/.bin/mcpdo" --format json --connection "toolhost-$transport-$era" "$@" 2>"$work/stderr"
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
	answer=$answer node -e '
		const all = JSON.parse(process.env.answer), r = all.result ?? all;
		let v = null;
		try { v = JSON.parse(r.content[0].text) } catch {}
		if (!('"$check"')) process.exit(1);
		const out = '"$print"';
		if (out !== null) console.log(out);
	' || fail "$transport, $era: $what: got $answer"
	[ "$print" != null ] || echo "ok   $transport, $era: $what"
}

tool() {
	ask mcpdo tools/call "$1" --tool-args-json "$2"
}

# checked checks a run until an expression is true of it, however slow the machine
# is: no request of the Inspector may take more than a minute.
checked() {
	local met=false
	until [ "$met" = true ]; do
		tool check_background "{\"task_id\":\"$1\",\"wait_seconds\":5}"
		met=$(expect "$1 can be checked" true "!!($2)")
	done
}

one_call_a_process() {
	ask inspector --protocol-era "$era" --method tools/list --strict --format json
	expect "the list has the plugins' tools and the agent's own" '
		["check_background", "clock_sleep", "primes", "spawn_background", "spin", "stop_background", "wordcount"].every(n => r.tools.some(t => t.name === n))'
	expect "each tool has all four annotations" '
		r.tools.every(t => ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"].every(h => typeof t.annotations[h] === "boolean"))'
	ask inspector --protocol-era "$era" --method tools/call --tool-name wordcount --tool-args-json '{"text":"a b\nc"}' --format json
	expect "wordcount counts" 'v.lines === 2 && v.words === 3 && v.bytes === 5 && JSON.stringify(r.structuredContent) === r.content[0].text'
	answer=$(inspector --protocol-era "$era" --method tools/call --tool-name wordcount --tool-args-json '{"txt":"a"}' --format json) &&
		fail "$transport, $era: wrong arguments were taken: $answer"
	expect "wrong arguments are a tool error that says which" 'r.isError && /missing: text/.test(r.content[0].text)'
	ask inspector --protocol-era "$era" --method tools/call --tool-name primes --tool-args-json '{"limit":20000000}' --format json
	expect "primes counts for as long as it takes" 'v.count === 1270607 && v.largest === 19999999'
	# Longer than the grace of 2 s of clients that take tasks, and far from the
	# 50 s after which one that does not is told the run's id instead.
	ask inspector --protocol-era "$era" --method tools/call --tool-name clock_sleep --tool-args-json '{"seconds":4}' --format json
	expect "a call that takes longer than some wait is waited for" 'v.slept_seconds === 4'
}

# connect makes mcpdo's connection. It gives its daemon 10 s to start, and finds
# it the next time. Over HTTP it names a session: without one, 2026-07-28 has no
# list of runs.
connect() {
	local to=("${target[@]}") named=()
	if [ "$transport" != stdio ]; then named=(--header "Toolhost-Session: ci-$era"); else to=(-- "${to[@]}"); fi
	for _ in $(seq 10); do
		answer=$(mcpdo connect "${named[@]}" --connect-timeout $patience --era "$era" "${to[@]}") && return
		grep -q daemon_start_timeout <<<"$answer $(cat "$work/stderr")" || break
	done
	fail "connecting failed: $answer $(cat "$work/stderr")"
}

one_session() {
	connect
	expect "connected" "r.protocolEra === '$era'"

	tool spawn_background '{"tool":"primes","args":{"limit":20000000}}'
	expect "primes is spawned" '/^bg_/.test(v.task_id) && v.status === "queued"'
	local id
	id=$(expect "primes has an id" true v.task_id)
	checked "$id" v.done
	expect "primes has ended with its result" 'v.status === "succeeded" && v.result.count === 1270607 && /1270607 primes/.test(v.summary)'

	tool spawn_background '{"tool":"spin","args":{},"timeout_seconds":3600}'
	id=$(expect "spin has an id" true v.task_id)
	checked "$id" 'v.status !== "queued"'
	expect "spin is running" '!v.done && v.status === "running"'
	tool stop_background "{\"task_id\":\"$id\",\"force\":true}"
	expect "spin is stopped, or will be" 'v.stopped || v.stopping'
	checked "$id" v.done
	expect "spin is stopped" 'v.status === "canceled"'
	tool check_background '{"list":true}'
	expect "nothing is running" 'v.active === 0 && v.finished >= 2'
	ask mcpdo disconnect
}

server_ends() {
	for _ in $(seq 3000); do
		running=$(ps -A -o args= | grep "^$work/toolhost mcp" || true)
		[ -n "$running" ] || break
		sleep 0.1
	done
	[ -z "$running" ] || fail "$era: the server outlives its client: $running"
	echo "ok   stdio, $era: the server ends with its client"
}

serve() {
	: >"$work/serve" # it is looked at at once
	"$work/toolhost" serve --config "$work/toolhost.yaml" --data "$work/served" --listen 127.0.0.1:0 2>"$work/serve" &
	server=$!
	until grep -q 'ready:' "$work/serve"; do
		kill -0 "$server" 2>/dev/null || fail "the server does not start: $(cat "$work/serve")"
		sleep 0.1
	done
	url=$(sed -n 's/.*listening on \(http.*\)/\1/p' "$work/serve")/mcp

	: >"$work/balanced.url"
	for n in 1 2 3; do mkdir -p "$work/hosts/host-$n" && ln -s "$work/data/cache" "$work/hosts/host-$n/cache"; done # compiled once
	"$work/balanced" "$work/toolhost" "$work/hosts" --config "$work/toolhost.yaml" >"$work/balanced.url" 2>"$work/hosts.log" &
	hosts=$!
	until [ -s "$work/balanced.url" ]; do
		kill -0 "$hosts" 2>/dev/null || fail "the hosts do not start: $(tail -20 "$work/hosts.log")"
		sleep 0.1
	done
	balanced=$(sed 's/.* on //' "$work/balanced.url")/mcp
}

era=none transport=none server= hosts= modules=
trap cleanup EXIT
mkdir "$work/home"
. "$root/.ci/npm.sh"
install_npm inspector "@modelcontextprotocol/inspector@$inspector"
build
serve
for era in legacy modern; do
	transport=stdio target=("$work/mcp")
	one_call_a_process
	one_session
	server_ends
	transport=http target=("$url")
	one_call_a_process
	one_session
	transport=balanced target=("$balanced")
	one_call_a_process
	one_session
done
echo "inspector: all is well"
