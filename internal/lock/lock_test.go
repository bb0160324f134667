package lock_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/lock"
)

var sum = "sha256:" + strings.Repeat("0a", 32)

// example has every field.
func example() *lock.File {
	f := &lock.File{}
	f.Set(lock.Plugin{
		Name: "web", Version: "1.4.0", Source: "oci://ghcr.io/acme/web:1.4", Resolved: "ghcr.io/acme/web@" + sum,
		Module: sum, Tools: map[string]string{"fetch": sum, "ask": sum},
		Grants: []string{"http GET,HEAD https://api.acme.com/*", "clock"},
		Signer: &lock.Signer{Sigstore: &lock.Sigstore{Issuer: "https://issuer.example", Identity: "ci@acme.com"}},
	})
	f.Set(lock.Plugin{Name: "note", Version: "1.0.0-rc.1", Source: "plugins", Resolved: "note.wasm", Module: sum, Sidecar: sum, Tools: map[string]string{"note": sum}, Unsigned: true})
	f.Set(lock.Plugin{Name: "fetch", Version: "0.1.0", Source: lock.Starter, Resolved: "fetch.wasm", Module: sum, Tools: map[string]string{"fetch": sum}})
	return f
}

const written = `# What was accepted of each plugin. toolhost lock writes it: review a change like code.
version: 1
plugins:
  - name: fetch
    version: 0.1.0
    source: starter
    resolved: fetch.wasm
    module: SUM
    tools:
      fetch: SUM
  - name: note
    version: 1.0.0-rc.1
    source: plugins
    resolved: note.wasm
    module: SUM
    sidecar: SUM
    tools:
      note: SUM
    unsigned: true
  - name: web
    version: 1.4.0
    source: oci://ghcr.io/acme/web:1.4
    resolved: ghcr.io/acme/web@SUM
    module: SUM
    tools:
      ask: SUM
      fetch: SUM
    grants:
      - clock
      - http GET,HEAD https://api.acme.com/*
    signer:
      sigstore:
        issuer: https://issuer.example
        identity: ci@acme.com
`

func TestEncode(t *testing.T) {
	data, err := example().Encode()

	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(written, "SUM", sum), string(data))
	again, err := lock.Parse(data)
	require.NoError(t, err)
	require.Equal(t, "note.wasm", again.Named("note").Resolved)
	require.Equal(t, "note", again.At("plugins", "note.wasm").Name)
	require.Nil(t, again.At("other", "note.wasm"))
	twice, err := again.Encode()
	require.NoError(t, err)
	require.Equal(t, string(data), string(twice))

	empty, err := (&lock.File{}).Encode()
	require.NoError(t, err)
	require.Contains(t, string(empty), "version: 1\nplugins: []\n")
}

// Each row changes the text above, as by hand.
func TestParseRefuses(t *testing.T) {
	wide := "tools: {"
	for i := range 200 {
		wide += fmt.Sprintf("t%d: SUM, ", i)
	}

	for _, test := range []struct{ name, old, new, want string }{
		{"empty", written, "# nothing\n", "the file is empty: write it with toolhost lock"},
		{"not YAML", written, "\t- {", "yaml: "},
		{"a list", written, "[1]", "expected a mapping with version and plugins"},
		{"a later version", "version: 1\n", "version: 2\nkeys: {}\n", `unknown version of toolhost.lock "2": this program knows version 1`},
		{"no version", "version: 1\n", "", "it names none, expected version: 1"},
		{"version twice", "version: 1\n", "version: 1\nversion: 1\n", `mapping key "version" already defined`},
		{"unknown field", "    unsigned: true", "    unsigned: true\n    accepted: true", `line 20: unknown field "accepted"`},
		{"field in another case", "sidecar:", "Sidecar:", `unknown field "Sidecar"`},
		{"another type", "unsigned: true", "unsigned: {a: 1}", "line 19: cannot unmarshal !!map"},
		{"two documents", "# What", "---\n{version: 1}\n---\n# What", "expected one YAML document, found another after ---"},
		{"duplicate plugin", "name: note", "name: web", `plugin "web": it is there twice`},
		{"two plugins of one file", "name: fetch\n    version: 0.1.0\n    source: starter\n    resolved: fetch.wasm\n", "name: fetch\n    version: 0.1.0\n    source: plugins\n    resolved: note.wasm\n    unsigned: true\n", `plugin "note": it has the source and file of the plugin "fetch"`},
		{"duplicate tool", "      ask: SUM\n", "      fetch: SUM\n", `mapping key "fetch" already defined`},
		{"name of a plugin", "name: note", "name: Note", `plugins.1: "Note" is not the name of a plugin`},
		{"name that looks like another", "name: note", "name: nоte", `is not the name of a plugin`},
		{"name of a tool", "      ask: SUM", "      ../ask: SUM", `plugin "web": tools: "../ask" is not the name of a tool`},
		{"no tools", "    tools:\n      note: SUM\n", "", `plugin "note": tools: expected 1 to 128, found 0`},
		{"short digest", "    module: SUM\n    sidecar: SUM", "    module: sha256:abc\n    sidecar: SUM", `plugin "note": module: expected sha256: and 64 digits of 0-9 and a-f, found "sha256:abc"`},
		{"digest in upper case", "sidecar: SUM", "sidecar: " + strings.ToUpper(sum), `plugin "note": sidecar: expected sha256:`},
		{"digest of another kind", "      note: SUM", "      note: sha1:0a", `plugin "note": tools.note: expected sha256:`},
		{"file in another folder", "resolved: note.wasm", "resolved: ../note.wasm", `plugin "note": resolved: expected the name of a file that ends in .wasm, without a folder`},
		{"file of Windows in another folder", "resolved: note.wasm", `resolved: '..\note.wasm'`, `resolved: expected the name of a file`},
		{"tag instead of a digest", "web@SUM", "web:1.4", `plugin "web": resolved: expected a reference with a digest`},
		{"reference that is a path of Windows", "web@SUM", `..\web@SUM`, `plugin "web": resolved: expected a reference with a digest`},
		{"missing source", "    source: plugins\n", "", `plugin "note": source is missing`},
		{"invisible character", "source: plugins", "source: \"plug\\u202eins\"", `plugin "note": source: invisible characters in "plug⟨U+202E⟩ins"`},
		{"two lines", "source: plugins", "source: \"plug\\nins\"", `plugin "note": source: invisible characters`},
		{"long", "source: plugins", "source: " + strings.Repeat("x", 2000), `plugin "note": source: expected at most 1024 bytes, found 2000`},
		{"same grant twice", "      - clock\n", "      - clock\n      - clock\n", `plugin "web": grants: "clock" is empty or there twice`},
		{"neither signed nor unsigned", "    unsigned: true\n", "", `plugin "note": expected either a signer or unsigned: true`},
		{"signed and unsigned", "    signer:", "    unsigned: true\n    signer:", `plugin "web": expected either a signer or unsigned: true`},
		{"signer of the program's own", "      fetch: SUM\n  - name: note", "      fetch: SUM\n    unsigned: true\n  - name: note", `plugin "fetch": it comes with the program: expected neither signer nor unsigned`},
		{"signer of no kind", "      sigstore:\n        issuer: https://issuer.example\n        identity: ci@acme.com\n", "      {}\n", `plugin "web": signer: expected one of minisign, key and sigstore`},
		{"two signers", "      sigstore:", "      minisign: RWQ\n      sigstore:", `plugin "web": signer: expected one of minisign, key and sigstore`},
		{"issuer without identity", "        identity: ci@acme.com\n", "", `plugin "web": signer.sigstore: expected an issuer and an identity`},
		{"alias", "source: plugins", "source: &a plugins", "line 13: anchors and aliases are not allowed"},
		{"tag", "unsigned: true", "unsigned: !!bool true", "line 19: tags are not allowed"},
		{"wide", "tools:\n      note: SUM", wide + "}", "line 17: a mapping has 200 keys, expected at most 128"},
		{"deep", "source: plugins", "source: " + strings.Repeat("[", 20) + strings.Repeat("]", 20), "line 13: expected at most 8 levels of nesting"},
		{"large", "# What", strings.Repeat("#", lock.MaxSize) + "\n# What", "the file has more than 1048576 bytes, the limit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Contains(t, written, test.old)
			text := strings.Replace(written, test.old, test.new, 1)

			_, err := lock.Parse([]byte(strings.ReplaceAll(text, "SUM", sum)))

			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestReadAndWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), lock.Name)
	_, err := lock.Read(name)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, lock.Write(name, &lock.File{}))
	require.NoError(t, lock.Write(name, example()))
	f, err := lock.Read(name)
	require.NoError(t, err)
	require.Len(t, f.Plugins, 3)
	entries, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left of the writing")

	require.Error(t, lock.Write(name, &lock.File{Plugins: []lock.Plugin{{Name: "../x"}}}), "what could not be read is not written")
	require.NoError(t, os.WriteFile(name, []byte("version: 7"), 0o600))
	_, err = lock.Read(name)
	require.ErrorIs(t, err, lock.ErrVersion)
	require.ErrorContains(t, err, name)

	if runtime.GOOS != "windows" {
		require.NoError(t, os.Chmod(name, 0o666))
		_, err = lock.Read(name)
		require.ErrorContains(t, err, "can be written by others")
	}
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.Mkdir(name, 0o700))
	_, err = lock.Read(name)
	require.ErrorContains(t, err, "is not a regular file")
}

// Everything that a model or an approver sees of a tool is in its digest. How a schema is
// written is not.
func TestToolDigest(t *testing.T) {
	tool := func(change func(*abi.Tool)) string {
		x := abi.Tool{
			Name: "get", Title: "Get", Description: "Gets it.", InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}`),
			OutputSchema: json.RawMessage(`{"type":"string"}`), Hints: abi.Hints{Readonly: true}, Approval: abi.ApprovalRequired,
			Examples: []abi.Example{{Args: json.RawMessage(`{"n":1}`), Result: json.RawMessage(`"a"`)}},
		}
		change(&x)
		sum, err := lock.ToolDigest("web_get", &x)
		require.NoError(t, err)
		return sum
	}
	same := tool(func(*abi.Tool) {})

	require.Equal(t, same, tool(func(x *abi.Tool) {
		x.InputSchema = json.RawMessage(`{ "properties": {"n": {"maximum": 9007199254740993, "type": "integer"}}, "type": "object" }`)
	}))
	require.Equal(t, same, tool(func(x *abi.Tool) { x.Limits.Fuel = 7 }), "what it asks for, no model reads")

	no := false
	for name, change := range map[string]func(*abi.Tool){
		"title":        func(x *abi.Tool) { x.Title = "get" },
		"description":  func(x *abi.Tool) { x.Description = "Gets it. " },
		"input schema": func(x *abi.Tool) { x.InputSchema = json.RawMessage(`{"type":"object"}`) },
		"number in schema": func(x *abi.Tool) {
			x.InputSchema = json.RawMessage(strings.Replace(string(x.InputSchema), "993", "992", 1))
		},
		"output schema": func(x *abi.Tool) { x.OutputSchema = nil },
		"readonly":      func(x *abi.Tool) { x.Hints.Readonly = false },
		"destructive":   func(x *abi.Tool) { x.Hints.Destructive = &no },
		"approval":      func(x *abi.Tool) { x.Approval = "" },
		"deferrable":    func(x *abi.Tool) { x.Deferrable = abi.DeferNever },
		"examples":      func(x *abi.Tool) { x.Examples[0].Result = json.RawMessage(`"b"`) },
	} {
		require.NotEqual(t, same, tool(change), name)
	}
	other, err := lock.ToolDigest("get", &abi.Tool{})
	require.NoError(t, err)
	another, err := lock.ToolDigest("got", &abi.Tool{})
	require.NoError(t, err)
	require.NotEqual(t, other, another, "the name that agents know")
}

// A lock that is accepted is written and read again as it is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(written, "SUM", sum)))
	f.Add([]byte("version: 1\nplugins: []\n"))
	f.Add([]byte("version: 1\nplugins: [{name: &a x, <<: *a}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := lock.Parse(data)
		if err != nil {
			return
		}

		out, err := file.Encode()
		require.NoError(t, err)
		again, err := lock.Parse(out)
		require.NoError(t, err)
		twice, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(out), string(twice))
	})
}
