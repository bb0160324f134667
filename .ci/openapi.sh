#!/usr/bin/env bash
# Lints the OpenAPI document with what others lint theirs with: the recommended
# rules of Redocly and of Spectral, without an exception, warnings included.
# Needs npm.
set -euo pipefail

redocly=2.77.0  # @redocly/cli
spectral=6.16.3 # @stoplight/spectral-cli

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. "$root/.ci/npm.sh"
install_npm openapi "@redocly/cli@$redocly" "@stoplight/spectral-cli@$spectral"

# Nothing is told to anybody, nor asked for: no telemetry, no look for updates.
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true HOME=$work

cd "$work" # where no configuration is
"$modules/.bin/redocly" lint --extends recommended-strict "$root/server/httpapi/openapi.json"
echo 'extends: ["spectral:oas"]' >ruleset.yaml
"$modules/.bin/spectral" lint --ruleset ruleset.yaml --fail-severity hint "$root/server/httpapi/openapi.json"
echo "openapi: all is well"
