#!/usr/bin/env bash
# Vets and tests the tools of examples/tools, which are a module of their own, builds
# each with the command, plays its examples in the sandbox, and fuzzes its parsers briefly.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TOOLHOST_DATA=$work/data
go build -o "$work/toolhost" ./cmd/toolhost

cd examples/tools
go generate ./shell # its interpreter is copied from the module proxy
go vet ./...
GOOS=wasip1 GOARCH=wasm go vet $(go list ./... | grep -v '/tools$') # where their common tests are, which run the host
go test -timeout 30m ./...
for main in */main.go; do
	name=$(dirname "$main")
	"$work/toolhost" build "$name" -o "$work/$name.wasm"
	"$work/toolhost" test "$work/$name.wasm"
done
git diff --exit-code go.mod go.sum || { echo "go.mod or go.sum is not complete"; exit 1; }

for file in $(git grep -l '^func Fuzz' -- '*_test.go'); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file"); do
		go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-500x}"
	done
done
