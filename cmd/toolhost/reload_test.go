package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// A reload says what it has read again, and what needs a restart.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	m := plugintest.Manifest("needy")
	m.Needs.Clock = true
	require.NoError(t, os.WriteFile(filepath.Join(dir, "needy.wasm"), plugintest.Plugin{Manifest: m, Invoke: plugintest.Do()}.Wasm(), 0o600))
	file := filepath.Join(t.TempDir(), "toolhost.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("limits: {timeout: 30s}\n")

	var log bytes.Buffer
	a := &app{ui: ui{out: &log, err: &log}}
	require.NoError(t, a.load(flagsOf("--config", file)))
	s, err := server.Open(t.Context(), server.Config{Folders: []plugins.Folder{plugins.Dir(dir)}, OnReload: a.reloaded})
	require.NoError(t, err)
	defer s.Close(t.Context())

	granted := a.config.server.Grants
	for _, test := range []struct{ config, want string }{
		{"limits: {timeout: 30s}\n", "toolhost: reloaded: nothing has changed in the plugins and the configuration\n"},
		{
			"limits: {timeout: 31s}\nwatch: false\ntoken: new\n", "toolhost: changed in the configuration, and in force only after a restart: limits.timeout, token, watch\n" +
				"toolhost: reloaded: nothing has changed in the plugins\n",
		},
		{"limits: {timeout: 30s}\ngrants: {needy: {clock: true}}\n", "toolhost: grants changed: needy\ntoolhost: reloaded: changed needy\n"},
		{
			"grants: {needy: {http: true}}\nwatch: 7\n",
			"toolhost: the configuration stays as it was: grants.needy.http: this version has no http grant, expected one of ask, clock, config, env, files, random, session (" + file +
				"); watch: expected true or false, found 7 (" + file + ")\n" +
				"toolhost: reloaded: nothing has changed in the plugins\n",
		},
		{
			"limits: {timeout: 30s}\n", "toolhost: grants changed: needy\ntoolhost: reloaded: changed needy\n" +
				"toolhost: problem: " + dir + "/needy.wasm: not granted what it needs: clock\n" +
				"toolhost: add to " + file + ", with your own choice for each CHOOSE, as YAML:\ngrants:\n  needy:\n    clock: true\n",
		},
	} {
		write(test.config)
		log.Reset()
		granted = a.reload(t.Context(), s, granted)
		require.Equal(t, test.want, log.String(), "%q", test.config)
	}
}

// A configuration that was trusted and has changed does not take the grants away.
func TestReloadUntrusted(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("toolhost.yaml", []byte("watch: true\n"), 0o600))
	var out bytes.Buffer
	a := &app{ui: ui{out: &out, err: &out}}
	require.NoError(t, trustFile(&a.ui, trustStore(userData()), nil))
	require.NoError(t, a.load(flagsOf()))

	require.NoError(t, os.WriteFile("toolhost.yaml", []byte("watch: false\n"), 0o600))
	_, err := a.reread()
	require.ErrorContains(t, err, "toolhost.yaml has changed since it was trusted: read it, then run toolhost trust, and send SIGHUP again")
}
