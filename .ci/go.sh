# Sourced by the gate and the full check: their steps, and how they run tests in Go.

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
actionlint=github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
gotestsum=gotest.tools/gotestsum@v1.13.0

step() { printf '\n== %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

reruns=$(mktemp -d)

# tests runs tests, none of them from the cache. One that fails is run again alone, twice: it
# fails if it fails each time, and [flaky] names it if not.
tests() { # OPTION… PACKAGE… [-args ARGUMENT…]
	local options=() packages=()
	while [ $# -gt 0 ]; do
		case $1 in
		-args) break ;;
		-race) options+=("$1") ;;
		-*) options+=("$1" "$2"); shift ;;
		*) packages+=("$1") ;;
		esac
		shift
	done
	go run "$gotestsum" --format pkgname --format-hide-empty-pkg --hide-summary skipped --packages "${packages[*]}" \
		--rerun-fails=2 --rerun-fails-max-failures 10 --rerun-fails-report "$reruns/$((++ran))" \
		-- -vet off -count 1 "${options[@]}" "$@"
}
ran=0

# flaky names the tests that failed and then passed. Such a test is mended at its root, or
# moves to the full check, the same day.
flaky() { find "$reruns" -type f -exec sed 's/^/flaky: /' {} +; }
