package toolhost_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"os"

	"github.com/stretchr/testify/require"
)

const module = "github.com/toolhost/toolhost"

// layers says what of this module each package may import, itself left out. A
// pattern that ends in /... stands for a folder of leaves. The picture is in
// ARCHITECTURE.md: imports point down only.
var layers = map[string][]string{
	".":                                  {"abi", "host", "plugins", "server", "server/gotool", "server/wire"}, // what an agent's loop imports
	"abi":                                {},                                                                   // the contract: standard library only, and it builds for wasip1
	"guest":                              {"abi", "internal/typed"},
	"guest/js":                           {"abi", "internal/wasmbin"}, // a runtime as bytes; only the command needs it
	"guest/c":                            {},                          // a header, as text
	"cmd/toolhost/internal/sigstore":     {"internal/signature"},
	"cmd/toolhost/internal/sigstoretest": {},           // for tests only
	"cmd/toolhost/internal/bundle":       {"guest/js"}, // what is written in JavaScript, into one module
	"internal/typed":                     {"abi"},      // small, like its importer guest
	"guest/internal/vectors":             {"abi", "guest"},
	"examples/plugins/internal/readme":   {"guest"},
	"guest/guesttest":                    {"abi", "guest", "internal/schema", "internal/egress"},
	"guest/web":                          {"guest"},
	"guest/python":                       {"abi", "internal/wasmbin"}, // a runtime of 4 MB: for what builds plugins
	"examples/plugins":                   {},
	"internal/wasmbin":                   {},                                                              // knows nothing of fuel
	"internal/atomics":                   {"internal/wasmbin"},                                            // bytes in, bytes out
	"internal/exceptions":                {"internal/wasmbin"},                                            // likewise
	"internal/fuel":                      {"internal/atomics", "internal/exceptions", "internal/wasmbin"}, // likewise
	"internal/snapshot":                  {"internal/wasmbin"},                                            // likewise
	"internal/checkpoint":                {},                                                              // likewise
	"internal/rootfs":                    {},
	"internal/owned":                     {},
	"internal/human":                     {"abi"},
	"internal/schema":                    {"abi", "internal/strictjson"},
	"internal/strictjson":                {"abi"},
	"internal/document":                  {},
	"internal/registry":                  {"internal/owned", "internal/strictjson"},   // answers of strangers in, files out; knows no plugin
	"internal/registry/registrytest":     {"internal/fulltest"},                       // for tests only
	"internal/lock":                      {"abi", "internal/human", "internal/owned"}, // a file: knows no plugin that is loaded
	"internal/signature":                 {},                                          // knows no plugin, and no certificates
	"internal/fair":                      {},
	"internal/watch":                     {},                                                                           // files, whatever they are
	"internal/egress":                    {"internal/fair"},                                                            // knows no plugin and no wasm
	"host/internal/compiler":             {"internal/fuel", "internal/snapshot", "internal/wasmbin", "internal/owned"}, // bytes of a stranger in, files out
	"host/internal/codecache":            {"host/internal/compiler", "internal/exceptions", "internal/fuel", "internal/snapshot", "internal/owned"},
	"host/internal/sched":                {},
	"host/internal/extism":               {"abi", "host/internal/answer", "host/internal/contract", "host/internal/guestcall", "host/internal/instance", "host/internal/meter", "internal/egress"},                    // functions of Extism plugins; knows no host, and no module
	"host/internal/instance":             {"internal/checkpoint", "internal/exceptions", "internal/fuel", "internal/snapshot", "internal/wasmbin"},                                                                    // memory and state of guests; knows no call
	"host/internal/contract":             {"abi", "host/internal/compiler", "internal/wasmbin"},                                                                                                                       // bytes in, what they promise out; runs nothing
	"host/internal/grant":                {"abi", "internal/egress"},                                                                                                                                                  // needs and rules; knows no call
	"host/internal/guestcall":            {"abi", "host/internal/answer", "host/internal/calltree", "host/internal/grant", "host/internal/instance", "host/internal/meter", "host/internal/sched", "internal/egress"}, // operations; knows no host, and no module
	"host/internal/meter":                {"host/internal/instance", "internal/fuel"},                                                                                                                                 // one call
	"host/internal/calltree":             {"abi", "host/internal/meter", "host/internal/sched", "internal/egress"},                                                                                                    // calls that wait for each other
	"host/internal/answer":               {"abi", "internal/human"},                                                                                                                                                   // what a guest says; knows no call
	"host/internal/wasi":                 {"abi", "host/internal/contract", "host/internal/grant", "host/internal/guestcall", "host/internal/instance", "internal/rootfs"},                                            // what a guest sees through WASI; knows no host, and no module
	"host/internal/wait":                 {"abi", "host/internal/answer", "host/internal/guestcall", "host/internal/instance", "host/internal/meter", "internal/checkpoint"},                                          // operations that a guest waits for; knows no host, and no module
	"host":                               {"abi", "host/internal/guestcall", "host/internal/wait", "host/internal/grant", "host/internal/meter", "host/internal/calltree", "host/internal/answer", "host/internal/contract", "host/internal/compiler", "host/internal/codecache", "host/internal/sched", "host/internal/extism", "host/internal/wasi", "host/internal/instance", "internal/checkpoint", "internal/fuel", "internal/snapshot", "internal/wasmbin", "internal/egress", "internal/fair", "internal/strictjson"},
	"plugins":                            {"abi", "host", "internal/schema", "internal/lock", "internal/owned", "internal/watch", "internal/document", "internal/signature", "internal/strictjson"},
	"pkg/background":                     {"pkg/background/engine", "pkg/background/engine/memory", "pkg/background/internal/schedule", "pkg/background/output"}, // knows nothing of wasm, anyone can import it
	"pkg/background/internal/schedule":   {},
	"pkg/background/engine":              {}, // records, and what a store of them must do
	"pkg/background/internal/ledger":     {"pkg/background/engine"},
	"pkg/background/output":              {"pkg/background/engine"},
	"pkg/background/engine/memory":       {"pkg/background/engine", "pkg/background/engine/enginetest", "pkg/background/internal/ledger", "pkg/background/output"},
	"pkg/background/engine/enginetest":   {"pkg/background/engine"},
	"pkg/background/postgres":            {"pkg/background/engine", "pkg/background/engine/enginetest", "pkg/background/internal/ledger", "pkg/background/output", "internal/pgtest", "internal/pglocal"},
	"internal/pglocal":                   {}, // a database server of its own
	"internal/pgtest":                    {"internal/pglocal", "internal/fulltest"},
	"internal/fleet":                     {}, // several hosts and a balancer, as processes
	"internal/fleet/balanced":            {"internal/fleet", "internal/pglocal"},
	"pkg/background/sqlite":              {"pkg/background/engine", "pkg/background/engine/enginetest", "pkg/background/internal/ledger", "pkg/background/output"},
	"server/telemetry":                   {},                                                        // instruments: knows no Service
	"server/audit":                       {},                                                        // a log: knows no Service
	"server/vault":                       {"host", "internal/owned"},                                // knows no Service
	"server/declare":                     {},                                                        // schemas in, TypeScript out
	"server/wire":                        {"abi", "pkg/background/engine", "pkg/background/output"}, // JSON shapes, in the words of records
	"client":                             {"abi", "server/wire"},                                    // the HTTP API as Go: no store of runs comes with it
	"server/identity":                    {"server/wire"},                                           // tokens and users, for any transport
	"server/httpapi":                     {"abi", "server", "server/identity", "server/telemetry", "server/wire", "internal/strictjson", "internal/fair"},
	"server/internal/presence":           {"internal/fair", "pkg/background/output", "server/wire"},                                                                                                                   // clients: knows no Service
	"server/internal/reason":             {"abi", "host", "plugins", "pkg/background", "pkg/background/engine", "server/vault", "server/wire"},                                                                        // errors in, words out
	"server/internal/record":             {"abi", "host", "plugins", "pkg/background", "pkg/background/engine", "server/audit", "server/telemetry", "server/wire", "server/internal/reason", "server/internal/shape"}, // what calls have done: knows no Service
	"server/internal/seal":               {"pkg/background/engine"},                                                                                                                                                   // what clients carry: knows no Service
	"server/internal/secret":             {"abi", "host", "pkg/background", "pkg/background/engine", "server/vault", "server/wire", "server/internal/reason"},                                                         // secrets of users: knows no Service
	"server/internal/shape":              {"abi", "host", "pkg/background", "pkg/background/engine", "pkg/background/output", "server/wire"},                                                                          // records in, shapes out
	"server/internal/cluster":            {"pkg/background/engine", "server/wire"},                                                                                                                                    // workers in, hosts out: knows no Service
	"server/internal/reload":             {"plugins"},                                                                                                                                                                 // knows no Service
	"server/internal/storage":            {"pkg/background/engine", "pkg/background/engine/memory", "pkg/background/sqlite", "server/wire", "server/internal/reason"},                                                 // knows no Service
	"server/internal/versions":           {"host", "plugins", "pkg/background/engine", "internal/owned"},                                                                                                              // plugins in, files out: knows no Service
	"server/internal/calllog":            {"abi", "host", "pkg/background/engine", "pkg/background/output", "server/wire", "server/internal/reason", "server/internal/shape"},                                         // calls within runs
	"server/internal/dryrun":             {},
	"server/internal/question":           {"abi", "host", "pkg/background", "pkg/background/engine", "pkg/background/output", "server/wire", "internal/schema", "server/internal/dryrun", "server/internal/reason"},                                                                                                                                                                                                                                                   // what runs ask their users: knows no Service
	"server/internal/values":             {"abi", "host", "pkg/background", "pkg/background/engine", "server/wire", "server/internal/dryrun", "server/internal/reason"},                                                                                                                                                                                                                                                                                               // scopes of an engine: knows no Service
	"server/internal/catalog":            {"abi", "host", "plugins", "pkg/background", "pkg/background/engine", "server/declare", "server/gotool", "server/wire", "server/internal/reason", "server/internal/shape", "internal/strictjson"},                                                                                                                                                                                                                           // tools, whatever their source: knows no Service
	"server/internal/approval":           {"abi", "plugins", "pkg/background", "pkg/background/engine", "pkg/background/output", "internal/strictjson", "server/audit", "server/wire", "server/internal/catalog", "server/internal/dryrun", "server/internal/question", "server/internal/reason", "server/internal/record", "server/internal/shape"},                                                                                                                  // calls that people decide on: knows no Service
	"server/internal/agent":              {"abi", "plugins", "pkg/background", "pkg/background/engine", "pkg/background/output", "server/wire", "server/internal/catalog", "server/internal/reason", "server/internal/shape", "internal/schema", "server/internal/question"},                                                                                                                                                                                          // the agent's own tools: knows no Service
	"server/internal/runs":               {"abi", "host", "plugins", "pkg/background", "pkg/background/engine", "pkg/background/output", "server/audit", "server/telemetry", "server/wire", "server/internal/agent", "server/internal/approval", "server/internal/calllog", "server/internal/catalog", "server/internal/dryrun", "server/internal/question", "server/internal/reason", "server/internal/record", "server/internal/shape", "server/internal/versions"}, // around background runs: knows no Service
	"server/internal/repeat":             {"abi", "pkg/background", "pkg/background/engine", "server/internal/approval", "server/internal/catalog", "server/internal/reason", "server/internal/runs"},                                                                                                                                                                                                                                                                 // earlier requests: knows no Service
	"server":                             {"abi", "host", "plugins", "pkg/background", "pkg/background/engine", "pkg/background/output", "pkg/background/sqlite", "server/audit", "server/telemetry", "server/vault", "server/gotool", "server/declare", "server/wire", "server/internal/reason", "server/internal/record", "server/internal/repeat", "server/internal/runs", "server/internal/shape", "server/internal/cluster", "server/internal/reload", "server/internal/storage", "server/internal/versions", "internal/schema", "internal/fair", "pkg/background/engine/memory", "server/internal/calllog", "server/internal/dryrun", "server/internal/question", "server/internal/values", "internal/owned", "server/internal/presence", "server/internal/seal", "server/internal/secret", "server/internal/agent", "server/internal/approval", "server/internal/catalog"},
	"server/gotool":                      {"abi", "host", "internal/typed", "internal/schema", "internal/strictjson", "internal/fair"}, // knows no Service
	"server/mcpapi":                      {"abi", "server", "server/telemetry", "server/wire", "server/identity", "internal/strictjson", "internal/fair"},
	"cmd/toolhost/internal/exporters":    {"server/telemetry"}, // the SDK of OpenTelemetry
	"cmd/toolhost/internal/export":       {"internal/human"},   // plugins in, files of other formats out
	"cmd/toolhost/internal/starter":      {"abi", "guest/js", "internal/wasmbin"},
	"server/webui":                       {"abi", "server", "server/audit", "server/identity", "server/wire", "internal/human"},
	"internal/plugintest":                {"abi", "internal/wasmbin"},                        // for tests only
	"internal/plugintest/bombs":          {"abi", "internal/plugintest", "internal/wasmbin"}, // likewise
	"internal/testlog":                   {},                                                 // likewise
	"internal/fulltest":                  {},                                                 // likewise
	"internal/wiretest":                  {},                                                 // likewise
	"examples/pluginbuild":               {"abi", "host", "internal/wasmbin"},
	"examples/demo":                      {"abi", "host", "plugins", "server", "internal/human"},
	"examples/plugins/internal/generate": {"host", "examples/pluginbuild"},
	"cmd/toolhost":                       {"abi", "host", "plugins", "pkg/background", "pkg/background/engine", "pkg/background/postgres", "server", "server/audit", "server/vault", "server/wire", "server/mcpapi", "server/httpapi", "server/identity", "server/webui", "client", "examples/demo", "examples/pluginbuild", "internal/fleet", "internal/pglocal", "examples/plugins/script", "guest/c", "guest/js", "guest/python", "cmd/toolhost/internal/bundle", "cmd/toolhost/internal/sigstore", "cmd/toolhost/internal/exporters", "cmd/toolhost/internal/starter", "cmd/toolhost/internal/export", "internal/wasmbin", "internal/human", "internal/lock", "internal/owned", "internal/watch", "internal/document", "internal/registry", "internal/schema", "internal/signature"},
	"examples/agent":                     {".", "abi", "server", "host", "examples/pluginbuild"}, // the last two build its plugins
	"examples/plugins/*":                 {"guest", "guest/web", "guest/guesttest"},              // what a third party would import, and no more
}

// onlyHere are packages of others that one package of this module imports: what others
// import of this module must not bring them along.
var onlyHere = map[string]string{
	"oras.land/":                          "internal/registry",
	"github.com/evanw/esbuild/":           "cmd/toolhost/internal/bundle",
	"github.com/sigstore/":                "cmd/toolhost/internal/sigstore",
	"github.com/prometheus/":              "cmd/toolhost/internal/exporters",
	"go.opentelemetry.io/otel/sdk/":       "cmd/toolhost/internal/exporters",
	"go.opentelemetry.io/otel/exporters/": "cmd/toolhost/internal/exporters",
}

// onlyStandard are the packages that import nothing but the standard library.
var onlyStandard = []string{"abi", "guest", "guest/web", "internal/typed"}

// TestLayers holds the architecture. It parses the files itself: a test that
// asks the go command is cached while the imports change.
func TestLayers(t *testing.T) {
	for _, file := range goFiles(t) {
		dir := path.Dir(file)
		allowed, ok := layers[dir]
		if !ok {
			allowed, ok = layers[path.Join(path.Dir(dir), "*")]
		}
		require.True(t, ok, "%s: the package is missing in layers_test.go: add it, and give it a package comment", dir)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if ours, ok := strings.CutPrefix(imported+"/", module+"/"); ok {
				ours = path.Clean(ours)
				require.Contains(t, append(allowed, dir), ours, "%s imports %s: imports point down only", file, ours)
				continue
			}
			for prefix, here := range onlyHere {
				require.False(t, strings.HasPrefix(imported, prefix) && dir != here && dir != here+"test", "%s imports %s: only %s does", file, imported, here)
			}
			third := strings.Contains(strings.Split(imported, "/")[0], ".")
			require.False(t, third && slices.Contains(onlyStandard, dir), "%s imports %s: %s is standard library only", file, imported, dir)
		}
	}
}

// goFiles lists the Go files of this module that are not tests, nor their data.
func goFiles(t *testing.T) []string {
	var files []string
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if base := path.Base(name); name != "." && (base == "testdata" || base[0] == '.' || isModule(name)) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, name)
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func isModule(dir string) bool {
	_, err := os.Stat(path.Join(dir, "go.mod"))
	return err == nil
}
