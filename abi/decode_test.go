package abi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// invalid is one case of testdata/manifests/invalid.json; the README next to it
// says what the fields mean.
type invalid struct {
	Name         string
	Manifest     json.RawMessage
	Text         *string
	Pointer      string
	Message      string
	More         []abi.Problem
	BeyondSchema bool `json:"beyond_schema"`
}

func (v invalid) document() []byte {
	if v.Text != nil {
		return []byte(*v.Text)
	}
	return v.Manifest
}

func readInvalid(t testing.TB) []invalid {
	data, err := os.ReadFile("testdata/manifests/invalid.json")
	require.NoError(t, err)
	var file struct{ Cases []invalid }
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&file))
	require.NotEmpty(t, file.Cases)
	return file.Cases
}

func readValid(t testing.TB) map[string][]byte {
	files, err := filepath.Glob("testdata/manifests/valid/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	docs := map[string][]byte{}
	for _, f := range files {
		docs[filepath.Base(f)], err = os.ReadFile(f)
		require.NoError(t, err)
	}
	return docs
}

func TestInvalidManifests(t *testing.T) {
	names := map[string]bool{}
	for _, v := range readInvalid(t) {
		require.False(t, names[v.Name], "the name %q is given twice", v.Name)
		names[v.Name] = true
		t.Run(v.Name, func(t *testing.T) {
			_, err := abi.DecodeManifest(v.document())
			var bad *abi.ManifestError
			require.ErrorAs(t, err, &bad)
			want := append([]abi.Problem{{Pointer: v.Pointer, Message: v.Message}}, v.More...)
			require.Equal(t, want, bad.Problems)
		})
	}
}

// What decodes and is written again decodes to the same.
func TestValidManifests(t *testing.T) {
	for name, doc := range readValid(t) {
		t.Run(name, func(t *testing.T) {
			m, err := abi.DecodeManifest(doc)
			require.NoError(t, err)
			requireStable(t, m)
		})
	}
}

func requireStable(t testing.TB, m *abi.Manifest) {
	first, err := json.Marshal(m)
	require.NoError(t, err)
	again, err := abi.DecodeManifest(first)
	require.NoError(t, err, "%s", first)
	second, err := json.Marshal(again)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
}

func TestFullManifest(t *testing.T) {
	m, err := abi.DecodeManifest(readValid(t)["full.json"])
	require.NoError(t, err)
	require.Equal(t, "2.1.0-rc.1+build.5", m.Version)
	tool, ok := m.Lookup("everything")
	require.True(t, ok)
	require.Equal(t, abi.Hints{
		SupportsBackground: true, Idempotent: true, Readonly: true, Destructive: new(false), OpenWorld: new(true),
		LongRunning: true, Concurrency: abi.Serial, PureInit: new(false),
	}, tool.Hints)
	require.Equal(t, abi.Limits{
		Fuel: 1e9, MemoryBytes: 16 << 20, TimeoutSeconds: 30, ParkAfterSeconds: 5, BackgroundSeconds: 600, OutputBytes: 64 << 10,
	}, tool.Limits)
	require.Equal(t, "Schaue nach {city}", tool.Narration.Started.In("de"))
	require.Equal(t, "no such city", tool.Examples[1].Error)
	require.Equal(t, abi.Needs{
		Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}, {Path: "/usr/share/cities", Mode: abi.FileRead}},
		Env:   []string{"LANG", "_PRIVATE"},
		Clock: true, Random: true, Ask: true, Session: abi.StoreWrite,
		Optional: &abi.Needs{KV: abi.StoreRead, HTTP: []abi.HTTPNeed{{URL: "https://cities.example/*"}}},
	}, m.Needs)
	require.Equal(t, abi.Needs{KV: abi.StoreWrite, Optional: &abi.Needs{Secrets: []string{"cities"}}}, tool.Needs)
}

// TestBounds has the faults that are too large for a file, each just beyond
// its bound, and the same just within.
func TestBounds(t *testing.T) {
	manifest := func(description, schema string, tools int) []byte {
		list := make([]string, tools)
		for i := range list {
			list[i] = fmt.Sprintf(`{"name":"t%d","description":"T.","input_schema":%s}`, i, schema)
		}
		return fmt.Appendf(nil, `{"abi":"toolhost_v1","name":"p","version":"1.0.0","description":%q,"tools":[%s]}`,
			description, strings.Join(list, ","))
	}
	object := `{"type":"object"}`
	nested := func(n int) string { // the schema is three levels deep
		return `{"type":"object","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	long := func(n int) string {
		return `{"type":"object","x":"` + strings.Repeat("a", n-len(`{"type":"object","x":""}`)) + `"}`
	}
	whole := func(n int) []byte {
		doc := manifest("d", object, 1)
		return append(doc, bytes.Repeat([]byte(" "), n-len(doc))...)
	}
	needs := func(n int) []byte { // half of them in an optional list of a tool
		list := func(n int) string { return `["A"` + strings.Repeat(`,"A"`, n-1) + `]` }
		return fmt.Appendf(nil, `{"abi":"toolhost_v1","name":"p","version":"1.0.0","description":"d","needs":{"env":%s},
			"tools":[{"name":"t","description":"T.","input_schema":{"type":"object"},"needs":{"optional":{"env":%s}}}]}`, list(500), list(n-500))
	}
	for name, c := range map[string]struct {
		good, bad []byte
		want      string
	}{
		"needs":       {needs(1000), needs(1001), "/needs: expected at most 1000 needs of the plugin and its tools, found 1001"},
		"size":        {whole(1 << 20), whole(1<<20 + 1), "the manifest has 1048577 bytes, at most 1048576 are allowed"},
		"description": {manifest(strings.Repeat("é", 4096), object, 1), manifest(strings.Repeat("é", 4097), object, 1), "/description: expected at most 4096 characters, found 4097"},
		"tools":       {manifest("d", object, 128), manifest("d", object, 129), "/tools: expected 1 to 128 tools, found 129"},
		"schema":      {manifest("d", long(65536), 1), manifest("d", long(65537), 1), `/tools/0/input_schema (tool "t0"): expected at most 65536 bytes, found 65537`},
		"nesting":     {manifest("d", nested(61), 1), manifest("d", nested(62), 1), "expected at most 64 levels of nesting"},
		"UTF-8":       {manifest("\u00e9", object, 1), bytes.Replace(manifest("XX", object, 1), []byte("XX"), []byte("\xc3\x28"), 1), "expected UTF-8 text"},
		"a bomb":      {manifest("d", nested(1), 1), []byte(strings.Repeat("[", 1<<19)), "expected at most 64 levels of nesting"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := abi.DecodeManifest(c.good)
			require.NoError(t, err)
			_, err = abi.DecodeManifest(c.bad)
			require.ErrorContains(t, err, "bad manifest: "+c.want)
		})
	}
}

// A hopeless document has a short report.
func TestManyProblems(t *testing.T) {
	doc := `{"abi":"toolhost_v1","name":"p","version":"1.0.0","description":"d","authors":[` + strings.Repeat("1,", 999) + `1],"tools":[]}`
	_, err := abi.DecodeManifest([]byte(doc))
	var bad *abi.ManifestError
	require.ErrorAs(t, err, &bad)
	require.Len(t, bad.Problems, 20)
	require.Equal(t, abi.Problem{Pointer: "/authors/19", Message: "expected a string, found a number"}, bad.Problems[19])
}

// What a report quotes of a hostile document is short.
func TestLongProblem(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	_, err := abi.DecodeManifest(fmt.Appendf(nil, `{"%s":{"a":1,"a":2},"abi":"%s"}`, long, long))
	require.ErrorContains(t, err, "…: the field is given twice")
	require.Less(t, len(err.Error()), 1200)
	_, err = abi.DecodeManifest(fmt.Appendf(nil, `{"abi":"%s","name":"p","version":"1.0.0","description":"d","tools":[]}`, long))
	require.ErrorContains(t, err, `/abi: expected "toolhost_v1", found "éé`)
	require.Less(t, len(err.Error()), 1200)
}

func FuzzDecodeManifest(f *testing.F) {
	for _, doc := range readValid(f) {
		f.Add(doc)
	}
	for _, v := range readInvalid(f) {
		f.Add(v.document())
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if n, err := abi.DecodeNeeds(doc); err == nil {
			require.Nil(t, n.Optional)
		}
		m, err := abi.DecodeManifest(doc)
		if err != nil {
			require.ErrorAs(t, err, new(*abi.ManifestError))
			return
		}
		requireStable(t, m)
		require.Nil(t, m.AllNeeds().All().Optional)
		for i := range m.Tools {
			_ = m.Tools[i].Narrate(abi.PhaseStarted, "de-CH", doc)
		}
	})
}

// TestNamesOfTools: errors name the tool besides its place in the manifest, also if its name
// is all of it that can be read.
func TestNamesOfTools(t *testing.T) {
	for name, c := range map[string]struct{ tools, want string }{
		"a name":          {`{"name":"a"},{"name":"b","hints":{"read_only":true}}`, `/tools/1/hints/read_only (tool "b"): unknown field`},
		"no name":         {`{"nome":"a"}`, `/tools/0/nome: unknown field`},
		"the name itself": {`{"name":"A","description":"d","input_schema":{"type":"object"}}`, `/tools/0/name: expected a name of`},
		"of another type": {`{"name":7},{"name":"b","timeout_ms":"1"}`, `/tools/1/timeout_ms (tool "b"): unknown field`},
		"no tool":         {`7`, `/tools/0: expected`},
		"hostile":         {`{"name":"a\"):\n","x":1}`, `/tools/0/x (tool "a\"):\n"): unknown field`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := abi.DecodeManifest([]byte(`{"abi":"toolhost_v1","name":"demo","version":"1.0.0","description":"d","tools":[` + c.tools + `]}`))
			require.ErrorContains(t, err, c.want)
		})
	}
}
