#!/usr/bin/env bash
# Drives the page of `toolhost serve` with Chromium, with JavaScript and
# without. Needs Go, npm, and Debian's package chromium-headless-shell, which it
# installs if it may. The whole of Chromium starts services that no test needs.
set -euo pipefail

playwright=1.65.1 # playwright-core

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

chromium=${CHROMIUM:-/usr/bin/chromium-headless-shell}
if [ ! -x "$chromium" ]; then
	echo "page: installing chromium-headless-shell"
	(apt-get update && apt-get install -y --no-install-recommends chromium-headless-shell) >"$work/apt" 2>&1 || { cat "$work/apt" >&2; exit 1; }
fi

. "$root/.ci/npm.sh"
install_npm page "playwright-core@$playwright"

(cd "$root" && go build -o "$work/toolhost" ./cmd/toolhost)
mkdir "$work/plugins"
for plugin in primes spin flood files memory; do
	(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
		-o "$work/plugins/$plugin.wasm" "./examples/plugins/$plugin")
done
(cd "$root" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath \
	-o "$work/plugins/hostile.wasm" ./server/webui/testdata/hostile)
head -c 100 "$work/plugins/spin.wasm" >"$work/plugins/broken.wasm"

export XDG_CONFIG_HOME=$work/config # not the configuration of whoever runs this
MODULES=$modules CHROMIUM=$chromium timeout 3000 node "$root/.ci/page.mjs" "$work"
echo "page: all is well"
