package plugins

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// pins is a folder of pins of what a folder of plugins has.
func pins(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pins")
	for _, p := range open(t, files).Plugins() {
		pin, err := p.Pin()
		require.NoError(t, err)
		require.NoError(t, WritePin(dir, p.Manifest.Name, pin))
	}
	return dir
}

// A name that is pinned is that of one file, with one manifest.
func TestPins(t *testing.T) {
	genuine := saying("p", "one", 1)
	evil := saying("p", "one", 2)
	beside := strings.Replace(sidecarYAML, "Made for a test.", "Does whatever you ask.", 1)
	mess := func(dir, name string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(`{"signer":"x"}`), 0o600))
	}

	for _, test := range []struct {
		name   string
		pinned map[string][]byte
		change func(dir string) // of pins
		files  map[string][]byte
		tools  []string // that are there
		want   string   // the problem
	}{
		{"the same", map[string][]byte{"p.wasm": genuine}, nil, map[string][]byte{"p.wasm": genuine}, []string{"p"}, ""},
		{"the same, elsewhere", map[string][]byte{"p.wasm": genuine}, nil, map[string][]byte{"x.wasm": genuine}, []string{"p"}, ""},
		{
			"another", map[string][]byte{"p.wasm": genuine}, nil, map[string][]byte{"p.wasm": evil}, []string{},
			`plugins/p.wasm: the plugin "p" is pinned to ` + digestOf(genuine)[:12] + ", and this file is " + digestOf(evil)[:12] + ": if you want this one, run toolhost pin p",
		},
		{
			"another beside it does not take its name", map[string][]byte{"p.wasm": genuine}, nil, map[string][]byte{"p.wasm": genuine, "evil.wasm": evil}, []string{"p"},
			`plugins/evil.wasm: the plugin "p" is pinned to `,
		},
		{
			"another that describes itself", map[string][]byte{"p.wasm": genuine}, nil, map[string][]byte{"p.wasm": describing(named("p"))}, []string{},
			`plugins/p.wasm: the plugin "p" is pinned to `,
		},
		{"the same manifest", map[string][]byte{"s.wasm": unsealed(), "s.toolhost.yaml": []byte(sidecarYAML)}, nil, map[string][]byte{"s.wasm": unsealed(), "s.toolhost.yaml": []byte(sidecarYAML)}, []string{"side"}, ""},
		{
			"another manifest", map[string][]byte{"s.wasm": unsealed(), "s.toolhost.yaml": []byte(sidecarYAML)}, nil, map[string][]byte{"s.wasm": unsealed(), "s.toolhost.yaml": []byte(beside)}, []string{},
			`plugins/s.wasm: the plugin "side" is pinned to ` + digestOf(unsealed())[:12] + " with another manifest next to it: if you want this one, run toolhost pin side",
		},
		{"another name is free", map[string][]byte{"q.wasm": sealed(named("q"))}, nil, map[string][]byte{"p.wasm": evil}, []string{"p"}, ""},
		{
			"a pin of a later version", map[string][]byte{"p.wasm": genuine}, func(dir string) { mess(dir, "p.json") }, map[string][]byte{"p.wasm": genuine}, []string{},
			`plugins/p.wasm: the pin of the plugin "p" cannot be read: `,
		},
		{
			"a pin that others can write", map[string][]byte{"p.wasm": genuine},
			func(dir string) { require.NoError(t, os.Chmod(filepath.Join(dir, "p.json"), 0o666)) },
			map[string][]byte{"p.wasm": genuine}, []string{}, "p.json can be written by others",
		},
		{
			"a folder of pins that others can write to", nil,
			func(dir string) {
				require.NoError(t, os.Mkdir(dir, 0o700))
				require.NoError(t, os.Chmod(dir, 0o777))
			},
			map[string][]byte{"p.wasm": genuine}, []string{}, `the pin of the plugin "p" cannot be read: unsafe: `,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(test.name, "others") {
				t.Skip("whom a file belongs to is unknown here")
			}
			dir := pins(t, test.pinned)
			if test.change != nil {
				test.change(dir)
			}

			r := openWith(t, newHost(t), Config{Folders: []Folder{folder(test.files)}, PinDir: dir})

			require.Equal(t, test.tools, toolNames(r))
			if test.want == "" {
				require.Empty(t, problems(r))
				return
			}
			require.Len(t, problems(r), 1)
			require.Contains(t, problems(r)[0], test.want)
		})
	}
}

func TestPinFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "pins")
	pin, err := ReadPin(dir, "p")
	require.NoError(t, err)
	require.Nil(t, pin)

	require.NoError(t, WritePin(dir, "p", Pin{Digest: "one"}))
	require.NoError(t, WritePin(dir, "p", Pin{Digest: "two", Sidecar: "three"}))
	pin, err = ReadPin(dir, "p")
	require.NoError(t, err)
	require.Equal(t, &Pin{Digest: "two", Sidecar: "three"}, pin)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left of the writing")

	require.NoError(t, RemovePin(dir, "p"))
	require.ErrorIs(t, RemovePin(dir, "p"), fs.ErrNotExist)
	pin, err = ReadPin("", "p")
	require.NoError(t, err)

	require.Nil(t, pin)
	for _, name := range []string{"../p", "a/b", "/p"} {
		require.ErrorContains(t, WritePin(dir, name, Pin{Digest: "x"}), "is not the name of a plugin")
		require.ErrorContains(t, RemovePin(dir, name), "is not the name of a plugin")
	}
}

// Of a plugin that is not pinned, no byte more is read for the pins there are.
func TestPinsReadNothingOfOthers(t *testing.T) {
	dir := pins(t, map[string][]byte{"q.wasm": sealed(named("q"))})
	var reads []int
	for _, pins := range []string{"", dir} {
		files := &countedFS{MapFS: fstest.MapFS{"p.wasm": wasmFile(sealed(named("p")))}}
		r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}, PinDir: pins})
		require.False(t, r.Plugins()[0].Pinned())
		reads = append(reads, files.reads)
	}
	require.Equal(t, reads[0], reads[1])
}

// A pinned plugin stays in use when another file replaces its own, until the new
// file is pinned in its turn. A plugin that no longer matches its pin does not stay
// in use.
func TestReloadOfPinned(t *testing.T) {
	first, second := saying("p", "one", 1), saying("p", "one", 2)
	files := fstest.MapFS{"p.wasm": wasmFile(first)}
	dir := pins(t, map[string][]byte{"p.wasm": first})
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}, PinDir: dir})
	require.True(t, r.Plugins()[0].Pinned())
	require.Equal(t, "1", answer(t, r, "p"))

	files["p.wasm"] = wasmFile(second)
	changes := reload(t, r)
	require.Len(t, changes.Problems, 1)
	require.ErrorIs(t, changes.Problems[0].Err, ErrPinned)
	require.ErrorContains(t, changes.Problems[0].Err, "; the earlier version stays in use")
	require.Equal(t, "1", answer(t, r, "p"))

	require.NoError(t, WritePin(dir, "p", Pin{Digest: digestOf(second)}))
	require.Equal(t, Changes{Changed: []string{"p"}}, reload(t, r))
	require.Equal(t, "2", answer(t, r, "p"))

	require.NoError(t, WritePin(dir, "p", Pin{Digest: digestOf(first)}))
	changes = reload(t, r)
	require.Equal(t, []string{"p"}, changes.Removed)
	require.ErrorIs(t, changes.Problems[0].Err, ErrPinned)
	require.NotContains(t, changes.Problems[0].Err.Error(), "stays in use")

	require.NoError(t, RemovePin(dir, "p"))
	require.Equal(t, []string{"p"}, reload(t, r).Added)
	require.False(t, r.Plugins()[0].Pinned())
	require.NoError(t, WritePin(dir, "p", Pin{Digest: digestOf(second)}))
	reload(t, r)
	require.True(t, r.Plugins()[0].Pinned(), "what was loaded before it was pinned")
}

// What takes the place of a pinned file before its first call is not even
// compiled.
func TestPinnedFileReplacedBeforeCall(t *testing.T) {
	genuine := sealed(named("p"))
	files := fstest.MapFS{"p.wasm": wasmFile(genuine)}
	h := newHost(t)
	r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: files}}, PinDir: pins(t, map[string][]byte{"p.wasm": genuine})})
	files["p.wasm"] = wasmFile(plugintest.Plugin{Manifest: named("p"), Invoke: plugintest.Do().Trap()}.Wasm())

	result, err := r.Tools()[0].Call(t.Context(), host.Call{})

	require.ErrorIs(t, err, ErrChanged)
	require.Equal(t, abi.Internal, result.Kind)
	require.Zero(t, h.Stats().Compiled)
}

// A pin takes effect in a registry that is watched.
func TestWatchPins(t *testing.T) {
	root := t.TempDir()
	first, second := saying("p", "one", 1), sealed(named("p", "x"))
	write(t, root+"/plugins/p.wasm", first)
	pinDir := filepath.Join(root, "data", "pins")
	w := watchWith(t, Config{Folders: []Folder{Dir(root + "/plugins")}, PinDir: pinDir})

	require.NoError(t, WritePin(pinDir, "p", Pin{Digest: digestOf(second)}))
	w.until()
	write(t, root+"/plugins/p.wasm", second)
	w.until("p_x")
	require.NoError(t, WritePin(pinDir, "p", Pin{Digest: digestOf(first)}))
	w.until()
	require.NoError(t, RemovePin(pinDir, "p"))
	w.until("p_x")
}
