#!/usr/bin/env bash
# Makes clients from the OpenAPI document with the generators that people use: oapi-codegen, and
# openapi-generator for Go, TypeScript and Java. Compiles them, and calls a server with each: the
# programs in .ci/generators list tools, call one, spawn a run, check it, make a dry run, and
# branch on the code of an error. Needs Go, npm, Python with venv, a JDK and Maven.
set -euo pipefail

oapi=2.8.2       # oapi-codegen
openapi=7.26.0   # openapi-generator; the TypeScript of 7.23 does not compile if a required field has a "_"
typescript=5.9.3
runtime=1.9.0    # github.com/oapi-codegen/runtime, which the code of oapi-codegen imports
validator=2.0.1  # gopkg.in/validator.v2, which that of openapi-generator imports

. "$(dirname "$0")/serve.sh"
document=$root/server/httpapi/openapi.json

. "$root/.ci/npm.sh"
install_npm generators "typescript@$typescript"

. "$root/.ci/pip.sh"
install_pip openapi-generator openapi-generator-cli "$openapi"

# generate makes the client of openapi-generator in a folder of its own.
generate() { # FOLDER GENERATOR OPTION…
	echo "generators: openapi-generator, $2"
	"$venv/bin/openapi-generator-cli" generate -i "$document" -o "$work/$1" -g "$2" "${@:3}" \
		--global-property apiTests=false,modelTests=false,apiDocs=false,modelDocs=false >"$work/log" 2>&1 ||
		{ cat "$work/log" >&2; return 1; }
}

# Clients in Go are packages of one module.
generate go/openapi go --additional-properties=withGoMod=false,disallowAdditionalPropertiesIfNotPresent=false
echo "generators: oapi-codegen"
mkdir -p "$work/go/oapi" "$work/go/cmd/oapi" "$work/go/cmd/openapi"
cp "$root/.ci/generators/oapi.go" "$work/go/cmd/oapi"
cp "$root/.ci/generators/openapi.go" "$work/go/cmd/openapi"
(
	cd "$work/go"
	export GOFLAGS="${GOFLAGS:-} -mod=mod"
	go run "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v$oapi" -generate types,client -package oapi -o oapi/client.go "$document"
	cat >go.mod <<-END
		module generated

		go 1.26

		require github.com/oapi-codegen/runtime v$runtime
		require gopkg.in/validator.v2 v$validator
	END
	go mod tidy
	go vet ./...
	go build -o bin/ ./cmd/...
)

generate typescript typescript-fetch
cp "$root/.ci/generators/main.ts" "$work"
node "$modules/typescript/bin/tsc" --strict --target es2022 --lib es2022,dom --module nodenext --outDir "$work/js" "$work/main.ts"

generate java java --library native
jars=${TMPDIR:-/tmp}/toolhost-maven-openapi-generator-$openapi
if ! [ -e "$jars/installed" ]; then
	echo "maven: installing what the client in Java needs"
	rm -rf "$jars"
	mvn -q -B -f "$work/java/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
		-DincludeScope=compile -DoutputDirectory="$jars"
	touch "$jars/installed"
fi
find "$work/java/src/main/java" -name '*.java' >"$work/sources"
javac -nowarn -d "$work/classes" -cp "$jars/*" @"$work/sources" "$root/.ci/generators/Main.java"

export TOKEN=generators
serve "$TOKEN" '' wordcount primes
export URL=$url

calls() { # NAME COMMAND…
	echo "generators: $1 calls"
	timeout 300 "${@:2}" || { tail -20 "$work/log" >&2; echo "generators: the client of $1 does not work" >&2; return 1; }
}
calls oapi-codegen "$work/go/bin/oapi"
calls openapi-generator/go "$work/go/bin/openapi"
calls openapi-generator/typescript-fetch node "$work/js/main.js"
calls openapi-generator/java java -cp "$work/classes:$jars/*" Main
echo "generators: all is well"
