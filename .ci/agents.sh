#!/usr/bin/env bash
# Drives agent programs that people use with Toolhost over stdio and HTTP. A scripted model
# stands in for a real one: it says what to call, and checks what the program shows it of
# results, errors, notices and held calls, and what the calls have done. Needs Go, npm and
# Python. With PROGRAM or PROGRAM/TRANSPORT as arguments, it drives only these.
set -euo pipefail

programs=(@anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33 @qwen-code/qwen-code@0.24.4)

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. "$root/.ci/npm.sh"
install_npm agents "${programs[@]}"
(cd "$root" && go build -o "$work/" ./cmd/toolhost)
(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
	-o "$work/plugins/notes.wasm" ./server/mcpapi/testdata/notes)
unset TOOLHOST_CONFIG TOOLHOST_DATA TOOLHOST_PLUGINS
cd "$work" # where no configuration is
XDG_CONFIG_HOME=$work/config ./toolhost compile --plugins plugins --data data

python3 -B "$root/.ci/agents.py" "$modules" "$work" "$@"
echo "agents: all is well"
