package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
)

// The lines that a missing grant is shown with grant it, as they are printed.
func TestLacking(t *testing.T) {
	needs := abi.Needs{
		Clock: true, Random: true, Ask: true, Session: abi.StoreWrite, KV: abi.StoreWrite, Tools: []string{"wordcount", "files_read"},
		Secrets: []string{"token"},
		HTTP:    []abi.HTTPNeed{{URL: "https://api.example.com/v1/*", Methods: []string{"GET", "POST"}}, {URL: "http://localhost:8080/*"}},
		Files:   []abi.FileNeed{{Path: "/in", Mode: abi.FileRead}, {Path: `/o: "ut, {}` + "\u202e", Mode: abi.FileWrite}},
		Env:     []string{"HOME", "null", "Y", "_1"},
	}
	for i := range reflect.TypeFor[abi.Needs]().NumField() - 1 { // without Optional
		require.False(t, reflect.ValueOf(needs).Field(i).IsZero(), "the test has all needs")
	}
	plugin := func(name string, g plugins.Grant) *plugins.Plugin {
		return &plugins.Plugin{Manifest: &abi.Manifest{Name: name, Needs: needs}, Grant: g, Missing: g.Missing(needs)}
	}
	all := []*plugins.Plugin{plugin("web", plugins.Grant{}), plugin("on", plugins.Grant{Clock: true, Session: abi.StoreRead, KV: host.KV{Mode: abi.StoreRead, Keys: 5}, Files: []host.Mount{{Dir: "/srv", Path: "/in"}}})}
	file := filepath.Join(t.TempDir(), "toolhost.yaml")
	require.NoError(t, os.WriteFile(file, []byte(new(config).lacking(all...)), 0o600))

	c, err := loadConfig(flagsOf("--config", file), nil)
	require.NoError(t, err)
	require.Empty(t, c.server.Grants["web"].Missing(needs))
	require.Equal(t, []string{"clock", "files /in (read)"}, c.server.Grants["on"].Missing(needs), "what it has already is not repeated")

	require.Empty(t, c.lacking())
	require.Empty(t, c.lacking(plugin("web", c.server.Grants["web"])))
	require.Equal(t, `grants:
  web:
    clock: true
    random: true
    ask: true
    session: write
    kv:
      mode: write
    http:
      - {url: "https://api.example.com/v1/*", methods: [GET, POST], secret: token}
      - {url: "http://localhost:8080/*", secret: token, private: true}
    files:
      - {dir: /CHOOSE, path: /in, mode: read}
      - {dir: /CHOOSE, path: "/o: \"ut, {}\u202e", mode: write}
    env:
      HOME: CHOOSE
      "Y": CHOOSE
      _1: CHOOSE
      "null": CHOOSE
    tools: [wordcount, files_read]
secrets:
  token:
    env: CHOOSE
    hosts: ["api.example.com", localhost]
    bearer: true
    http: true
`, new(config).lacking(all[0]))
}

// flagsOf are the flags of a command that reads the configuration.
func flagsOf(args ...string) *pflag.FlagSet {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.String("config", "", "")
	if err := flags.Parse(args); err != nil {
		panic(err)
	}
	return flags
}
