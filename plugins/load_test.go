package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

const (
	sidecarYAML = "abi: toolhost_v1\nname: side\nversion: 1.0.0\ndescription: Made for a test.\n" +
		"tools:\n  - name: side\n    description: Made for a test.\n    input_schema: {type: object}\n"
	sidecarTOML = "abi = 'toolhost_v1'\nname = 'side'\nversion = '1.0.0'\ndescription = 'Made for a test.'\n" +
		"[[tools]]\nname = 'side'\ndescription = 'Made for a test.'\ninput_schema = {type = 'object'}\n"
	sidecarJSON = `{"abi":"toolhost_v1","name":"side","version":"1.0.0","description":"Made for a test.",` +
		`"tools":[{"name":"side","description":"Made for a test.","input_schema":{"type":"object"}}]}`
)

// The manifest is looked for in the module, next to it, and in what it says
// itself, in this order.
func TestManifestSource(t *testing.T) {
	both := plugintest.Plugin{
		Manifest: named("sealed"),
		Describe: plugintest.Do().Say(abi.StreamManifest, string(plugintest.JSON(named("described")))),
	}
	unsealedBoth := both

	unsealedBoth.Manifest = nil
	for _, test := range []struct {
		name    string
		files   map[string][]byte
		tool    string
		source  string
		problem string
	}{
		{"custom section", map[string][]byte{"p.wasm": sealed(named("sealed"))}, "sealed", "custom section toolhost.manifest", ""},
		{"yaml", map[string][]byte{"p.wasm": unsealed(), "p.toolhost.yaml": []byte(sidecarYAML)}, "side", "p.toolhost.yaml", ""},
		{"yml", map[string][]byte{"p.wasm": unsealed(), "p.toolhost.yml": []byte(sidecarYAML)}, "side", "p.toolhost.yml", ""},
		{"json", map[string][]byte{"p.wasm": unsealed(), "p.toolhost.json": []byte(sidecarJSON)}, "side", "p.toolhost.json", ""},
		{"toml", map[string][]byte{"p.wasm": unsealed(), "p.toolhost.toml": []byte(sidecarTOML)}, "side", "p.toolhost.toml", ""},
		{"describe", map[string][]byte{"p.wasm": describing(named("described"))}, "described", "toolhost_describe", ""},
		{"section before describe", map[string][]byte{"p.wasm": both.Wasm()}, "sealed", "custom section toolhost.manifest", ""},
		{
			"section before sidecar", map[string][]byte{"p.wasm": sealed(named("sealed")), "p.toolhost.yaml": []byte(sidecarYAML)},
			"sealed", "custom section toolhost.manifest",
			"plugins/p.toolhost.yaml: ignored: the module has a manifest of its own",
		},
		{
			"section before a sidecar that is broken", map[string][]byte{"p.wasm": sealed(named("sealed")), "p.toolhost.toml": []byte("= =")},
			"sealed", "custom section toolhost.manifest",
			"plugins/p.toolhost.toml: ignored: the module has a manifest of its own",
		},
		{
			"sidecar before describe", map[string][]byte{"p.wasm": unsealedBoth.Wasm(), "p.toolhost.yaml": []byte(sidecarYAML)},
			"side", "p.toolhost.yaml", "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := open(t, test.files)
			require.Equal(t, []string{test.tool}, toolNames(r))
			p := r.Plugins()[0]
			require.Equal(t, test.source, p.Source)
			require.Equal(t, "plugins/p.wasm", p.File)
			if test.problem == "" {
				require.Empty(t, problems(r))
			} else {
				require.Equal(t, []string{test.problem}, problems(r))
			}
		})
	}
}

// A folder of sealed plugins is opened without running or compiling any.
func TestOpenRunsNothingSealed(t *testing.T) {
	r := open(t, map[string][]byte{"p.wasm": plugintest.Plugin{
		Manifest: named("p"), Describe: plugintest.Do().Spin(), Invoke: plugintest.Do().Spin(),
	}.Wasm()})
	require.Equal(t, []string{"p"}, toolNames(r))
	require.Nil(t, r.Plugins()[0].module)
}

// A plugin that has described itself is not asked again, by this process or the next.
func TestDescribeIsCachedByDigest(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "made", "on demand")
	wasm := describing(named("described"))
	h := newHost(t)
	openCached := func() *Registry {
		return openWith(t, h, Config{Folders: []Folder{folder(map[string][]byte{"p.wasm": wasm})}, CacheDir: cache})
	}
	asked := func(times int64) {
		t.Helper()
		require.Equal(t, times, h.Stats().Started)
	}
	r := openCached()
	asked(1)
	digest, err := r.Plugins()[0].Digest()
	require.NoError(t, err)
	file := filepath.Join(cache, "manifest-"+digest+".json")
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(plugintest.JSON(named("described"))), string(kept))

	r = openCached()
	require.Equal(t, []string{"described"}, toolNames(r))
	asked(1)

	require.NoError(t, os.WriteFile(file, kept[:len(kept)/2], 0o600))
	r = openCached()
	require.Equal(t, []string{"described"}, toolNames(r))
	asked(2) // half a file is no manifest
	require.Empty(t, problems(r))

	wasm = describing(named("other"))
	require.Equal(t, []string{"other"}, toolNames(openCached()), "another binary has another digest")
}

// changingFS has another file each time one is opened.
type changingFS struct {
	fstest.MapFS
	next [][]byte
}

func (c *changingFS) Open(name string) (fs.File, error) {
	if len(c.next) > 0 {
		c.MapFS[name], c.next = wasmFile(c.next[0]), c.next[1:]
	}
	return c.MapFS.Open(name)
}

// A plugin is asked only if its file is still the one that was looked at.
func TestDescribeOfChangedFile(t *testing.T) {
	files := &changingFS{MapFS: fstest.MapFS{"p.wasm": wasmFile(describing(named("a")))}}
	h := newHost(t)
	files.next = [][]byte{describing(named("a")), describing(named("b"))}
	_, _, err := Load(t.Context(), h, Config{Folders: []Folder{{Path: "plugins", FS: files}}}, "p.wasm")
	require.ErrorIs(t, err, ErrChanged)
	require.Zero(t, h.Stats().Started)
	p, _, err := Load(t.Context(), h, Config{Folders: []Folder{{Path: "plugins", FS: files}}}, "p.wasm")
	require.NoError(t, err)
	require.Equal(t, "b", p.Manifest.Name)
}

// What others could have put into the cache is not believed.
func TestDescribeCacheUnsafe(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(cache, file string) error
		problem string
	}{
		"a folder that others write to": {func(cache, _ string) error { return os.Chmod(cache, 0o777) }, "the cache is not used: unsafe: "},
		"a sticky one":                  {func(cache, _ string) error { return os.Chmod(cache, 0o777|os.ModeSticky) }, "the cache is not used: unsafe: "},
		"another user's folder":         {func(cache, _ string) error { return os.Chown(cache, 65534, 65534) }, "the cache is not used: unsafe: "},
		"a file that others write":      {func(_, file string) error { return os.Chmod(file, 0o666) }, ""},
		"another user's file":           {func(_, file string) error { return os.Chown(file, 65534, 65534) }, ""},
		"a link":                        {func(_, file string) error { return errors.Join(os.Rename(file, file+"~"), os.Symlink(file+"~", file)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			open := func() *Registry {
				return openWith(t, newHost(t), Config{Folders: []Folder{folder(map[string][]byte{"p.wasm": describing(named("described"))})}, CacheDir: cache})
			}
			digest, err := open().Plugins()[0].Digest()
			require.NoError(t, err)
			file := filepath.Join(cache, "manifest-"+digest+".json")
			require.NoError(t, os.WriteFile(file, plugintest.JSON(named("forged")), 0o600))
			require.Equal(t, []string{"forged"}, toolNames(open()), "by this user, who may")
			if err := c.change(cache, file); err != nil {
				t.Skip(err)
			}

			r := open()
			require.Equal(t, []string{"described"}, toolNames(r))
			if c.problem == "" {
				require.Empty(t, problems(r))
				return
			}

			require.Len(t, problems(r), 1)
			require.Contains(t, problems(r)[0], c.problem)
		})
	}
}

// A cache that cannot be written costs time, not the plugin.
func TestDescribeCacheUnwritable(t *testing.T) {
	notAFolder := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notAFolder, nil, 0o600))
	r := openWith(t, newHost(t), Config{
		Folders:  []Folder{folder(map[string][]byte{"p.wasm": describing(named("described"))})},
		CacheDir: notAFolder,
	})
	require.Equal(t, []string{"described"}, toolNames(r))
	require.Len(t, problems(r), 1)
	require.Contains(t, problems(r)[0], "the manifest cannot be cached: ")
}

// Each bad file is a problem that names it and says what is wrong; the rest of
// the folder works.
func TestBadFiles(t *testing.T) {
	good := sealed(named("good"))
	component := append([]byte("\x00asm"), 0x0d, 0x00, 0x01, 0x00)
	unknown := plugintest.Plugin{Manifest: named("p"), Import: "writ"}.Wasm()
	typo := strings.Replace(sidecarYAML, "description: Made for a test.\ntools", "descripton: Made for a test.\ntools", 1)
	noMemory := func() []byte {
		m, err := wasmbin.Parse(sealed(named("p")))
		require.NoError(t, err)
		m.Exports = m.Exports[:1]
		return m.Encode()
	}()
	schema := named("p")

	schema.Tools[0].InputSchema = []byte(`{"type":"object","properties":{"n":{"type":"intger"}}}`)
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  []string // in the one problem
	}{
		{"truncated", map[string][]byte{"p.wasm": good[:len(good)/2]}, []string{"plugins/p.wasm: module: malformed wasm", "unexpected end"}},
		{"empty", map[string][]byte{"p.wasm": {}}, []string{"plugins/p.wasm: module: malformed wasm"}},
		{"text", map[string][]byte{"p.wasm": []byte("#!/bin/sh\necho hello\n")}, []string{"plugins/p.wasm: module: malformed wasm"}},
		{"component", map[string][]byte{"p.wasm": component}, []string{"plugins/p.wasm: module: ", "component"}},
		{"unknown import", map[string][]byte{"p.wasm": unknown}, []string{`plugins/p.wasm: import "toolhost_v1.writ": `, `did you mean "write"?`}},
		{"missing export", map[string][]byte{"p.wasm": noMemory}, []string{`plugins/p.wasm: export "memory": missing`}},
		{"no manifest", map[string][]byte{"p.wasm": unsealed()}, []string{"plugins/p.wasm: the plugin has no manifest: add "}},
		{
			"manifest with a typo", map[string][]byte{"p.wasm": unsealed(), "p.toolhost.yaml": []byte(typo)},
			[]string{"plugins/p.wasm: p.toolhost.yaml: bad manifest: ", `/descripton: unknown field, did you mean "description"?`, `the field "description" is missing`},
		},
		{
			"bad schema", map[string][]byte{"p.wasm": sealed(schema)},
			[]string{`plugins/p.wasm: custom section toolhost.manifest: /tools/0/input_schema (tool "p"): bad schema: /properties/n/type: `},
		},
		{
			"describe crashes", map[string][]byte{"p.wasm": plugintest.Plugin{Describe: plugintest.Do().Trap()}.Wasm()},
			[]string{"plugins/p.wasm: toolhost_describe: the plugin crashed"},
		},
		{
			"describe never ends", map[string][]byte{"p.wasm": plugintest.Plugin{Describe: plugintest.Do().Spin()}.Wasm()},
			[]string{"plugins/p.wasm: toolhost_describe: out of fuel"},
		},
		{
			"describe says nothing", map[string][]byte{"p.wasm": plugintest.Plugin{Describe: plugintest.Do()}.Wasm()},
			[]string{"plugins/p.wasm: toolhost_describe: the plugin has no manifest"},
		},
		{
			"describe says nonsense", map[string][]byte{"p.wasm": plugintest.Plugin{Describe: plugintest.Do().Say(abi.StreamManifest, "{")}.Wasm()},
			[]string{"plugins/p.wasm: toolhost_describe: bad manifest: expected JSON"},
		},
		{
			"two sidecars", map[string][]byte{"p.wasm": unsealed(), "p.toolhost.json": []byte(sidecarJSON), "p.toolhost.yml": []byte(sidecarYAML)},
			[]string{"plugins/p.wasm: two sidecars, p.toolhost.yml and p.toolhost.json: remove one"},
		},
		{
			"sidecar alone", map[string][]byte{"p.toolhost.json": []byte(sidecarJSON)},
			[]string{"plugins/p.toolhost.json: there is no p.wasm next to it"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.files["good.wasm"] = good
			r := open(t, test.files)
			require.Len(t, problems(r), 1)
			for _, want := range test.want {
				require.Contains(t, problems(r)[0], want)
			}
			require.Equal(t, []string{"good"}, toolNames(r))
			result, err := r.Tools()[0].Call(t.Context(), host.Call{Args: []byte(`{"a":1}`)})
			require.NoError(t, err)
			require.JSONEq(t, `{"a":1}`, string(result.Value))
		})
	}
}

func TestTooLargeFile(t *testing.T) {
	dir := t.TempDir()
	huge, err := os.Create(filepath.Join(dir, "huge.wasm"))
	require.NoError(t, err)
	require.NoError(t, huge.Truncate(host.DefaultPluginSize+1)) // sparse
	require.NoError(t, huge.Close())
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}})
	require.Equal(t, []string{filepath.Join(dir, "huge.wasm") + ": the file has 67108865 bytes, expected at most 67108864: the setting host.plugin_size allows more"}, problems(r))
}

// TestPluginSize: the operator decides how large the file of a plugin may be.
func TestPluginSize(t *testing.T) {
	dir := t.TempDir()
	wasm := sealed(named("large"))
	size := len(wasm)
	wasm = wasmbin.AppendCustom(wasm, "padding", make([]byte, host.DefaultPluginSize))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large.wasm"), wasm, 0o600))
	for most, found := range map[int64]int{0: 1, 80 << 20: 0, int64(size): 1} {
		h, err := host.New(t.Context(), host.Config{PluginSize: most})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
		r := openWith(t, h, Config{Folders: []Folder{Dir(dir)}})
		require.Len(t, problems(r), found, "%d: %v", most, problems(r))
		if found == 0 {
			result, err := r.Tools()[0].Call(t.Context(), host.Call{Args: []byte(`{"a":1}`)})
			require.NoError(t, err)
			require.JSONEq(t, `{"a":1}`, string(result.Value))
		}
	}

	for _, wrong := range []int64{-1, host.MaxPluginSize + 1} {
		_, err := host.New(t.Context(), host.Config{PluginSize: wrong})
		require.ErrorContains(t, err, fmt.Sprintf("%d bytes, expected at most 1073741824", wrong))
	}
}

// Files in subfolders, files that begin with a dot, and other files than plugins are
// silently ignored. A link to a file counts as that file.
func TestIgnoredFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	write("p.wasm", sealed(named("p")))
	write("sub/q.wasm", sealed(named("q")))
	write("folder.wasm/r.wasm", sealed(named("r")))
	write(".hidden.wasm", []byte("no plugin"))
	write(".hidden.toolhost.yaml", []byte("no manifest"))
	write("README.md", []byte("# Plugins"))
	write("p.wasm.bak", []byte("no plugin"))
	require.NoError(t, os.Symlink(filepath.Join("sub", "q.wasm"), filepath.Join(dir, "link.wasm")))
	require.NoError(t, os.Symlink("sub", filepath.Join(dir, "linked folder.wasm")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling.wasm")))
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}})
	require.Equal(t, []string{"p", "q"}, toolNames(r))
	require.Len(t, problems(r), 2)
	require.Contains(t, problems(r)[0], "dangling.wasm: ")
	require.Contains(t, problems(r)[1], "linked folder.wasm: expected a file")
}

func TestMissingFolder(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(missing), folder(map[string][]byte{"p.wasm": sealed(named("p"))})}})
	require.Equal(t, []string{"p"}, toolNames(r))
	require.Len(t, problems(r), 1)
	require.Contains(t, problems(r)[0], missing+": the folder cannot be read: ")
	require.Equal(t, 1, strings.Count(problems(r)[0], missing), "the path is said once")
	require.ErrorIs(t, r.Problems()[0].Err, os.ErrNotExist)
}

func TestFileInPlaceOfAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.wasm")
	require.NoError(t, os.WriteFile(file, sealed(named("p")), 0o600))
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(file)}})
	require.Equal(t, []string{file + ": not a folder: name the folder that contains the plugin"}, problems(r))
}

// Load is for the author of one file: nothing is granted, so that what it needs
// is missing.
func TestLoad(t *testing.T) {
	m := named("p")
	m.Needs.Clock = true
	cfg := Config{Folders: []Folder{folder(map[string][]byte{"p.wasm": sealed(m), "p.toolhost.json": []byte(sidecarJSON), "broken.wasm": {}})}}
	h := newHost(t)
	p, beside, err := Load(t.Context(), h, cfg, "p.wasm")
	require.NoError(t, err)
	require.Equal(t, "p", p.Manifest.Name)
	require.Equal(t, []string{"clock"}, p.Missing)
	require.Len(t, beside, 1)
	require.Equal(t, "plugins/p.toolhost.json", beside[0].File)

	_, _, err = Load(t.Context(), h, cfg, "broken.wasm")
	require.ErrorIs(t, err, host.ErrABI)
	_, _, err = Load(t.Context(), h, cfg, "missing.wasm")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestOpenEndsWithItsContext(t *testing.T) {
	why := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := Open(ctx, newHost(t), Config{Folders: []Folder{folder(map[string][]byte{"p.wasm": describing(named("p"))})}})
	require.ErrorIs(t, err, why)
}
