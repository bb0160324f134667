#!/usr/bin/env bash
# Loads what `toolhost export` writes into clients that people use, without a model:
# Codex and GitHub Copilot CLI install the agent plugin from a marketplace, and Codex
# starts its server and calls a tool; MCPB's own command validates the bundle, whose
# server then answers. Needs Go and npm.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "clients: $*" >&2; exit 1; }

# lists checks that what a command prints matches a pattern. The command prints into a file:
# grep -q would close a pipe under it.
lists() { # PATTERN COMMAND...
	timeout 120 "${@:2}" >"$work/listed" 2>"$work/complaints" || true
	grep -q "$1" "$work/listed" || { cat "$work/listed" "$work/complaints" >&2; return 1; }
}

. "$root/.ci/npm.sh"
install_npm clients @openai/codex@0.169.0 @github/copilot@1.0.102 @anthropic-ai/mcpb@2.1.2
bin=$modules/.bin

(cd "$root" && go build -o "$work/bin/" ./cmd/toolhost)
for plugin in wordcount primes; do
	(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
		-o "$work/plugins/$plugin.wasm" "./examples/plugins/$plugin")
done
export HOME=$work/home PATH=$work/bin:$PATH
export XDG_CONFIG_HOME=$HOME/config XDG_DATA_HOME=$HOME/share # not those of whoever runs this
unset TOOLHOST_CONFIG TOOLHOST_DATA TOOLHOST_PLUGINS
mkdir -p "$HOME"

market=$work/market
mkdir -p "$market/.agents/plugins" "$market/.claude-plugin" "$market/plugins"
toolhost export agent-plugin "$market/plugins/counting" --plugins "$work/plugins" --author Toolhost
cat >"$market/.agents/plugins/marketplace.json" <<-END
	{"name": "local", "interface": {"displayName": "Local"}, "plugins": [{"name": "counting", "category": "Productivity",
	 "source": {"source": "local", "path": "./plugins/counting"}, "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}}]}
END
cat >"$market/.claude-plugin/marketplace.json" <<-END
	{"name": "local", "owner": {"name": "Toolhost"}, "plugins": [{"name": "counting", "source": "./plugins/counting"}]}
END

echo "clients: Codex"
timeout 120 "$bin/codex" plugin marketplace add "$market" >"$work/codex.log" 2>&1 || { cat "$work/codex.log"; fail "codex takes no marketplace"; }
timeout 120 "$bin/codex" plugin add counting@local >>"$work/codex.log" 2>&1 || { cat "$work/codex.log"; fail "codex does not install the plugin"; }
lists '^counting .*enabled' "$bin/codex" mcp list || fail "codex lists no server"
timeout 300 node "$root/.ci/codex.mjs" "$bin/codex" || fail "codex starts no server"

echo "clients: Copilot CLI"
timeout 120 "$bin/copilot" plugin marketplace add "$market" >"$work/copilot.log" 2>&1 || { cat "$work/copilot.log"; fail "copilot takes no marketplace"; }
timeout 120 "$bin/copilot" plugin install counting@local >>"$work/copilot.log" 2>&1 || { cat "$work/copilot.log"; fail "copilot does not install the plugin"; }
lists 'Command: toolhost mcp' "$bin/copilot" mcp get counting || fail "copilot lists no server"
lists '^ *counting - Use these tools' "$bin/copilot" skill list || fail "copilot lists no skill"

echo "clients: MCPB"
toolhost export mcpb "$work/counting.mcpb" --plugins "$work/plugins" --author Toolhost
timeout 120 "$bin/mcpb" unpack "$work/counting.mcpb" "$work/bundle" >/dev/null
timeout 120 "$bin/mcpb" validate "$work/bundle/manifest.json"
timeout 300 node "$root/.ci/bundle.mjs" "$work/bundle" || fail "the bundle's server does not answer"
echo "clients: all is well"
