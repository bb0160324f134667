package plugins

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

func TestRegistry(t *testing.T) {
	first := folder(map[string][]byte{"B.wasm": sealed(named("b", "two", "one")), "a.wasm": sealed(named("a"))})
	second := folder(map[string][]byte{"c.wasm": sealed(named("c", "x"))})
	second.Path = "more"
	r := openWith(t, newHost(t), Config{Folders: []Folder{first, second}})
	require.Empty(t, problems(r))
	require.Equal(t, []string{"a", "b_one", "b_two", "c_x"}, toolNames(r))
	var files []string
	for _, p := range r.Plugins() {
		files = append(files, p.File)
	}
	require.Equal(t, []string{"plugins/B.wasm", "plugins/a.wasm", "more/c.wasm"}, files)

	tool, err := r.Lookup("b_two")
	require.NoError(t, err)
	require.Equal(t, "two", tool.Tool.Name)
	require.Equal(t, "b", tool.Plugin.Manifest.Name)
}

func TestEmptyRegistry(t *testing.T) {
	r := openWith(t, newHost(t), Config{})
	require.Empty(t, r.Tools())
	require.Empty(t, r.Problems())
	_, err := r.Lookup("anything")
	require.ErrorIs(t, err, ErrNoTool)
}

func TestLookupSuggests(t *testing.T) {
	r := open(t, map[string][]byte{"p.wasm": sealed(named("wordcount")), "q.wasm": sealed(named("files", "read", "write"))})
	for _, test := range []struct{ name, want string }{
		{"wordcont", `no such tool: "wordcont", did you mean "wordcount"?`},
		{"file_read", `no such tool: "file_read", did you mean "files_read"?`},
		{"read", `no such tool: "read"`},
		{"", `no such tool: ""`},
		{"a name far longer than any tool can have, said by a model that is making things up", `no such tool: "a name far longer than any tool can have, said by a model that i"`},
	} {
		_, err := r.Lookup(test.name)
		require.ErrorIs(t, err, ErrNoTool)
		require.EqualError(t, err, test.want)
	}
}

// No plugin with a name that is taken is loaded, whatever the order of files:
// each is reported with the others it clashes with.
func TestCollisions(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  []string
	}{
		{
			"plugins",
			map[string][]byte{"1.wasm": sealed(named("a", "x")), "2.wasm": sealed(named("a", "y"))},
			[]string{
				`plugins/1.wasm: the plugin "a" is also in plugins/2.wasm: none of them is loaded: rename or remove all but one`,
				`plugins/2.wasm: the plugin "a" is also in plugins/1.wasm: none of them is loaded: rename or remove all but one`,
			},
		},
		{
			"tools as agents see them",
			map[string][]byte{"1.wasm": sealed(named("a_b", "c")), "2.wasm": sealed(named("a", "other", "b_c"))},
			[]string{
				`plugins/1.wasm: the tool "a_b_c" is also in plugins/2.wasm: none of them is loaded: rename or remove all but one`,
				`plugins/2.wasm: the tool "a_b_c" is also in plugins/1.wasm: none of them is loaded: rename or remove all but one`,
			},
		},
		{
			"a tool of its plugin's name and a tool of another plugin",
			map[string][]byte{"1.wasm": sealed(named("a_b")), "2.wasm": sealed(named("a", "b"))},
			[]string{
				`plugins/1.wasm: the tool "a_b" is also in plugins/2.wasm: none of them is loaded: rename or remove all but one`,
				`plugins/2.wasm: the tool "a_b" is also in plugins/1.wasm: none of them is loaded: rename or remove all but one`,
			},
		},
		{
			"three of a name, one of which clashes with a fourth",
			map[string][]byte{
				"1.wasm": sealed(named("a", "x")), "2.wasm": sealed(named("a", "b_c")), "3.wasm": sealed(named("a", "y")),
				"4.wasm": sealed(named("a_b", "c")),
			},
			[]string{
				`plugins/1.wasm: the plugin "a" is also in plugins/2.wasm, plugins/3.wasm: none of them is loaded: rename or remove all but one`,
				`plugins/2.wasm: the plugin "a" is also in plugins/1.wasm, plugins/3.wasm: none of them is loaded: rename or remove all but one`,
				`plugins/3.wasm: the plugin "a" is also in plugins/1.wasm, plugins/2.wasm: none of them is loaded: rename or remove all but one`,
				`plugins/4.wasm: the tool "a_b_c" is also in plugins/2.wasm: none of them is loaded: rename or remove all but one`,
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.files["good.wasm"] = sealed(named("good"))
			r := open(t, test.files)
			require.Equal(t, test.want, problems(r))
			require.Equal(t, []string{"good"}, toolNames(r))
			require.Len(t, r.Plugins(), 1)
		})
	}
}

// What is said of many that clash does not grow with the square of their number.
func TestManyCollisions(t *testing.T) {
	files := map[string][]byte{}
	for i := range 30 {
		files[fmt.Sprintf("%02d.wasm", i)] = sealed(named("a"))
	}
	r := open(t, files)
	require.Len(t, problems(r), 30)
	require.Equal(t, `plugins/01.wasm: the plugin "a" is also in plugins/00.wasm, plugins/02.wasm, plugins/03.wasm, and 26 more: `+
		"none of them is loaded: rename or remove all but one", problems(r)[1])
}

// A plugin that says itself what it is was compiled for that: it is freed when
// it is not loaded, and no other is.
func TestCollisionFreesPlugins(t *testing.T) {
	r := open(t, map[string][]byte{
		"1.wasm": describing(named("a", "x")), "2.wasm": describing(named("a", "y")), "good.wasm": describing(named("good")),
	})
	require.Len(t, problems(r), 2)
	require.Equal(t, []string{"good"}, toolNames(r))
	result, err := r.Tools()[0].Call(t.Context(), host.Call{Args: []byte(`{}`)})
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(result.Value))
}

func TestReservedNames(t *testing.T) {
	r := openWith(t, newHost(t), Config{
		Reserved: []string{"spawn_background"},
		Folders: []Folder{folder(map[string][]byte{
			"1.wasm": sealed(named("spawn", "background", "other")), "2.wasm": sealed(named("spawn_background")),
			"good.wasm": sealed(named("good")),
		})},
	})
	require.Equal(t, []string{
		`plugins/1.wasm: the tool "spawn_background" is reserved for the host: rename it`,
		`plugins/2.wasm: the tool "spawn_background" is reserved for the host: rename it`,
	}, problems(r))
	require.Equal(t, []string{"good"}, toolNames(r))
}
