package plugins

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

var everything = abi.Needs{
	Clock: true, Random: true,
	Files: []abi.FileNeed{{Path: "/in", Mode: abi.FileRead}, {Path: "/out", Mode: abi.FileWrite}},
	Env:   []string{"HOME"},
}

func TestGrantMissing(t *testing.T) {
	for _, test := range []struct {
		name  string
		needs abi.Needs
		grant Grant
		want  []string
	}{
		{"nothing needed", abi.Needs{}, Grant{}, nil},
		{"nothing needed, something granted", abi.Needs{}, Grant{Clock: true}, nil},
		{
			"nothing granted", everything, Grant{},
			[]string{"clock", "random", "files /in (read)", "files /out (write)", "env HOME"},
		},
		{
			"all granted", everything,
			Grant{
				Clock: true, Random: true, Env: map[string]string{"HOME": ""},
				Files: []host.Mount{{Path: "/in"}, {Path: "/out", Mode: abi.FileWrite}},
			}, nil,
		},
		{
			"granted too little", abi.Needs{Files: everything.Files},
			Grant{Files: []host.Mount{{Path: "/in", Mode: abi.FileWrite}, {Path: "/out"}}}, []string{"files /out (write)"},
		},
		{
			"granted elsewhere", abi.Needs{Files: everything.Files[:1]},
			Grant{Files: []host.Mount{{Path: "/in/deeper"}, {Path: "/"}}}, []string{"files /in (read)"},
		},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, test.grant.Missing(test.needs)) })
	}
}

func TestGrantNames(t *testing.T) {
	require.Equal(t, []string{}, Grant{Config: map[string]string{"a": "b"}}.Names())
	require.Equal(t, []string{"clock", "random", "files /in (read)", "files /out (write)", "env A", "env B"}, Grant{
		Clock: true, Random: true, Env: map[string]string{"B": "2", "A": "1"},
		Files: []host.Mount{{Path: "/in"}, {Path: "/out", Mode: abi.FileWrite}},
	}.Names())
}

// A plugin that was not granted all it needs is there to be seen, but is not
// called, and not even compiled.
func TestCallDenied(t *testing.T) {
	m := named("p")
	m.Needs = abi.Needs{Clock: true, Env: []string{"HOME"}}
	files := []Folder{folder(map[string][]byte{"p.wasm": sealed(m)})}
	h := newHost(t)
	r := openWith(t, h, Config{Folders: files, Grants: map[string]Grant{"p": {Clock: true}}})
	require.Equal(t, []string{"env HOME"}, r.Plugins()[0].Missing)
	require.ErrorIs(t, r.Plugins()[0].Denied(), host.ErrDenied)
	result, err := r.Tools()[0].Call(t.Context(), host.Call{})
	require.ErrorIs(t, err, host.ErrDenied)
	require.Equal(t, abi.Result{
		Kind: abi.ToolError, Error: "denied: the plugin p needs env HOME, which the operator has not granted",
	}, result)
	require.Nil(t, r.Plugins()[0].module)

	r = openWith(t, h, Config{Folders: files, Grants: map[string]Grant{"p": {Clock: true, Env: map[string]string{"HOME": "/"}}}})
	require.NoError(t, r.Plugins()[0].Denied())
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
}

// A grant holds for the plugin it names and no other, whatever the caller's
// policy says.
func TestGrantApply(t *testing.T) {
	grant := Grant{
		Clock: true, Env: map[string]string{"A": "1"}, Config: map[string]string{"k": "v"},
		Files: []host.Mount{{Dir: "d", Path: "/work", Mode: abi.FileWrite}},
	}
	sneaky := host.Policy{Grant: host.Grant{Random: true, Env: map[string]string{"B": "2"}, Files: []host.Mount{{Dir: "/", Path: "/"}}}, Fuel: 7}
	policy := sneaky
	policy.Grant = granted(grant, abi.Hints{})
	require.Equal(t, host.Policy{
		Fuel: 7, Grant: host.Grant{Clock: true, Env: map[string]string{"A": "1"}, Config: map[string]string{"k": "v"}, Files: []host.Mount{{Dir: "d", Path: "/work", Mode: abi.FileWrite}}},
	}, policy)

	policy = sneaky
	policy.Grant = granted(grant, abi.Hints{Readonly: true})
	require.Equal(t, abi.FileRead, policy.Files[0].Mode, "a tool that says it is readonly")
	require.Equal(t, abi.FileWrite, grant.Files[0].Mode, "the grant itself stays as it is")

	policy = sneaky
	policy.Grant = granted(Grant{}, abi.Hints{})
	require.Equal(t, host.Policy{Fuel: 7}, policy, "nothing granted is nothing")
}

func TestGrantForNobody(t *testing.T) {
	cfg := Config{
		Folders: []Folder{folder(map[string][]byte{"p.wasm": sealed(named("wordcount"))})},
		Grants:  map[string]Grant{"wordcont": {Clock: true}, "zebra": {}, "wordcount": {}},
	}
	h := newHost(t)
	require.Equal(t, []string{
		`grants.wordcont: there is no such plugin, did you mean "wordcount"?`,
		`grants.zebra: there is no such plugin`,
	}, problems(openWith(t, h, cfg)))
	missing := Dir(filepath.Join(t.TempDir(), "dist"))
	cfg.Folders = append(cfg.Folders, missing)
	require.Equal(t, []string{missing.Path + ": the folder cannot be read: no such file or directory"}, problems(openWith(t, h, cfg)), "it may have the others")
	cfg.Folders = nil
	require.Empty(t, problems(openWith(t, h, cfg)), "where no plugin is, none is misspelled")
}

// What a tool says of itself is held, not trusted: one that is readonly cannot
// write to a folder that was granted for writing.
func TestReadonlyToolCannotWrite(t *testing.T) {
	dir := t.TempDir()
	m := named("p", "read", "write")
	m.Tools[0].Hints.Readonly = true
	m.Needs.Files = []abi.FileNeed{{Path: "/data", Mode: abi.FileWrite}}
	r := openWith(t, newHost(t), Config{
		Folders: []Folder{folder(map[string][]byte{"p.wasm": plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Create("made")}.Wasm()})},
		Grants:  map[string]Grant{"p": {Files: []host.Mount{{Dir: dir, Path: "/data", Mode: abi.FileWrite}}}},
	})

	require.True(t, r.Plugins()[0].Grant.Writes())
	for _, tool := range r.Tools() {
		_, err := tool.Call(t.Context(), host.Call{})
		require.NoError(t, err)
		_, err = os.Stat(filepath.Join(dir, "made"))
		if tool.Tool.Name == "read" {
			require.ErrorIs(t, err, os.ErrNotExist)
		} else {
			require.NoError(t, err)
		}
	}
}

// What a plugin lacks is what turns a grant into one that lacks nothing, whatever was
// granted before.
func TestGrantLacking(t *testing.T) {
	needs := everything
	needs.Ask, needs.Session, needs.KV, needs.Tools = true, abi.StoreWrite, abi.StoreWrite, []string{"wordcount", "files_read"}
	needs.HTTP = []abi.HTTPNeed{{URL: "https://example.com/a/*"}, {URL: "http://10.0.0.1:8080/*", Methods: []string{"POST"}}}
	needs.Secrets = []string{"token"}
	for i := range reflect.TypeFor[abi.Needs]().NumField() - 1 { // without Optional
		require.False(t, reflect.ValueOf(needs).Field(i).IsZero(), "the test has all needs")
	}
	for name, grant := range map[string]Grant{
		"nothing granted": {},
		"some granted":    {Clock: true, Files: []host.Mount{{Dir: "/in", Path: "/in"}}, Env: map[string]string{"OTHER": "1"}},
		"too little":      {Random: true, Tools: []string{"files_read"}, Session: abi.StoreRead, KV: host.KV{Mode: abi.StoreRead}, HTTP: []host.HTTPRule{{URL: "https://*.example.org/*"}}, Files: []host.Mount{{Dir: "/srv", Path: "/out"}}},
	} {
		t.Run(name, func(t *testing.T) {
			lacking := grant.Lacking(needs)

			require.ElementsMatch(t, grant.Missing(needs), lacking.Names())
			both := Grant{
				Clock: grant.Clock || lacking.Clock, Random: grant.Random || lacking.Random, Ask: grant.Ask || lacking.Ask, Session: lacking.Session, KV: lacking.KV, Tools: append(grant.Tools, lacking.Tools...), HTTP: append(grant.HTTP, lacking.HTTP...),
				Files: append(grant.Files, lacking.Files...), Env: lacking.Env,
			}
			require.Empty(t, both.Missing(needs))
			require.Empty(t, lacking.Check())
			require.Zero(t, both.Lacking(needs))
		})
	}

	lacking := Grant{Files: []host.Mount{{Dir: "/srv", Path: "/out"}}}.Lacking(everything)
	require.Contains(t, lacking.Files, host.Mount{Dir: "/srv", Path: "/out", Mode: abi.FileWrite}, "the folder it has for reading")
}

// Reconfigure loads the plugins whose grants have changed anew, and no others. A plugin
// whose file is broken does not stay in use with grants it no longer has.
func TestReconfigureGrants(t *testing.T) {
	m := plugintest.Manifest("needy")
	m.Needs = abi.Needs{Clock: true}
	files := fstest.MapFS{
		"needy.wasm": wasmFile(plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Say(abi.StreamResult, "1")}.Wasm()),
		"other.wasm": wasmFile(saying("other", "Other.", 2)),
	}
	r := openMap(t, files)
	other := r.Plugins()[1]

	c, err := r.Reconfigure(t.Context(), func(c *Config) { c.Grants = map[string]Grant{"needy": {Clock: true}, "nobody": {Clock: true}} })
	require.NoError(t, err)
	require.Equal(t, []string{"needy"}, c.Changed)
	require.Len(t, c.Problems, 1)
	require.Equal(t, "grants.nobody: there is no such plugin", c.Problems[0].String())
	require.Equal(t, "1", answer(t, r, "needy"))
	require.Same(t, other, r.Plugins()[1])

	files["needy.wasm"] = wasmFile([]byte("broken"))
	require.Equal(t, []string(nil), reload(t, r).Removed, "it stays in use with the grants it has")
	c, err = r.Reconfigure(t.Context(), func(c *Config) { c.Grants = nil })
	require.NoError(t, err)
	require.Equal(t, []string{"needy"}, c.Removed)

	files["needy.wasm"] = wasmFile(plugintest.Plugin{Manifest: m, Invoke: plugintest.Do()}.Wasm())
	c = reload(t, r)
	require.Len(t, c.Problems, 1)
	var missing *GrantError
	require.ErrorAs(t, c.Problems[0].Err, &missing)
	require.ErrorIs(t, missing, host.ErrDenied)
	require.Equal(t, "not granted what it needs: clock", missing.Error())
}
