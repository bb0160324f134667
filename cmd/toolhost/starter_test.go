package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/starter"
	"github.com/toolhost/toolhost/internal/testlog"
)

// TestStarterExamples: toolhost test passes each plugin of the starter pack.
func TestStarterExamples(t *testing.T) {
	const sources = "internal/starter"
	dir := t.TempDir()
	config := filepath.Join(dir, "toolhost.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`grants:
  weather: {http: [{url: "https://api.open-meteo.com/v1/forecast"}, {url: "https://geocoding-api.open-meteo.com/v1/search"}]}
  web: {http: [{url: "https://*/*"}]}
`), 0o600))
	for _, name := range starter.Names() {
		t.Run(name, func(t *testing.T) {
			wasm, err := starter.Plugin(name)
			require.NoError(t, err)
			file := filepath.Join(dir, name, name+".wasm")
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			require.NoError(t, os.WriteFile(file, wasm, 0o600))
			if seed := filepath.Join(sources, name, "testdata"); exists(seed) {
				require.NoError(t, os.CopyFS(filepath.Join(filepath.Dir(file), "testdata"), os.DirFS(seed)))
			}

			var out testlog.Buffer
			code := run(t.Context(), []string{"test", file, "--config", config, "--data", filepath.Join(dir, "data")}, strings.NewReader(""), &out, &out)
			require.Zero(t, code, out.String())
			require.Contains(t, out.String(), " passed, 0 failed")
			require.NotContains(t, out.String(), "without an example")
		})
	}
}

// TestStarterSetting: what the setting takes, and what is served.
func TestStarterSetting(t *testing.T) {
	all := starter.Names()
	for name, c := range map[string]struct {
		environ []string
		want    []string
		err     string
	}{
		"nothing":                {nil, all, ""},
		"a folder":               {[]string{"TOOLHOST_PLUGINS=/p"}, nil, ""},
		"a folder and true":      {[]string{"TOOLHOST_PLUGINS=/p", "TOOLHOST_STARTER=true"}, all, ""},
		"false":                  {[]string{"TOOLHOST_STARTER=false"}, []string{}, ""},
		"names":                  {[]string{"TOOLHOST_STARTER=web" + string(filepath.ListSeparator) + "math"}, []string{"math", "web"}, ""},
		"a name twice":           {[]string{"TOOLHOST_STARTER=math" + string(filepath.ListSeparator) + "math"}, []string{"math"}, ""},
		"a name that is unknown": {[]string{"TOOLHOST_STARTER=fils"}, nil, `starter.0: expected one of clock, echo, files`},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := loadConfig((&app{}).root().PersistentFlags(), c.environ)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Equal(t, all, loaded.starters(), "nothing else is wrong")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, loaded.starters())
		})
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
