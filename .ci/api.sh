#!/usr/bin/env bash
# Tests `toolhost serve` against its OpenAPI document with a property-based tester,
# Schemathesis: what the document allows is accepted, what it forbids is refused, and
# each answer is as described. Needs Go and Python with venv.
set -euo pipefail

schemathesis=4.32.5

. "$(dirname "$0")/serve.sh"
. "$root/.ci/pip.sh"
install_pip schemathesis schemathesis "$schemathesis"

token=schemathesis
serve "$token" 'grants: {clock: {clock: true}}' echo wordcount primes clock

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
