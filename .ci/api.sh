#!/usr/bin/env bash
# Tests `toolhost serve` against its OpenAPI document with a property-based tester,
# Schemathesis: what the document allows is accepted, what it forbids is refused, and
# each answer is as described. Needs Go and Python with venv.
set -euo pipefail

schemathesis=4.32.5

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
server=
cleanup() {
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap cleanup EXIT

venv=${TMPDIR:-/tmp}/toolhost-python-schemathesis-$schemathesis
if ! [ -e "$venv/installed" ]; then
	echo "python: installing schemathesis $schemathesis"
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$schemathesis"
	touch "$venv/installed"
fi

(cd "$root" && go build -o "$work/toolhost" ./cmd/toolhost)
for plugin in echo wordcount primes clock; do
	(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
		-o "$work/plugins/$plugin.wasm" "./examples/plugins/$plugin")
done
cat >"$work/toolhost.yaml" <<-END
	plugins: [$work/plugins]
	grants: {clock: {clock: true}}
END
export XDG_CONFIG_HOME=$work/config # not the configuration of whoever runs this
"$work/toolhost" compile --config "$work/toolhost.yaml" --data "$work/data"

token=schemathesis
TOOLHOST_TOKEN=$token "$work/toolhost" serve --listen 127.0.0.1:0 --config "$work/toolhost.yaml" --data "$work/data" >"$work/log" 2>&1 &
server=$!
for _ in $(seq 600); do
	grep -q 'ready:' "$work/log" && break
	sleep 0.2
done
url=$(sed -n 's/.*listening on \(http.*\)/\1/p' "$work/log" | head -1)

# What the document cannot say: that two parameters exclude each other, as those of
# a list and the ids do, which arguments a tool takes, and how long an output is.
cd "$work"
for operation in "GET /v1/runs" "POST /v1/runs" "POST /v1/schedules" "GET /v1/runs/{run}/output" "GET /v1/runs/{run}/artifacts/{name}"; do
	printf '[[operations]]\ninclude-name = "%s"\nchecks.positive_data_acceptance.enabled = false\n\n' "$operation"
done >schemathesis.toml
# A dry run of DELETE removes nothing: what it names can still be read.
printf '[checks]\nuse_after_free.enabled = false\n' >>schemathesis.toml

# A stream of events never ends by itself.
"$venv/bin/st" run "$root/server/httpapi/openapi.json" --url "$url" --header "Authorization: Bearer $token" --header "Toolhost-Session: default" \
	--exclude-path /v1/events --phases examples,coverage,fuzzing,stateful --max-examples "${EXAMPLES:-20}" \
	--generation-deterministic --request-timeout 90 --continue-on-failure ||
	{ tail -20 "$work/log" >&2; echo "api: Schemathesis found differences" >&2; exit 1; }
echo "api: all is well"
