package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/webui"
	"github.com/toolhost/toolhost/server/wire"
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

	r := reloader{a, s, a.config.server.Grants}
	for _, test := range []struct{ config, want string }{
		{"limits: {timeout: 30s}\n", "toolhost: reloaded: nothing has changed in the plugins and the configuration\n"},
		{
			"limits: {timeout: 31s}\nwatch: false\ntoken: new\n", "toolhost: changed in the configuration, and in force only after a restart: limits.timeout, token, watch\n" +
				"toolhost: reloaded: nothing has changed in the plugins\n",
		},
		{"limits: {timeout: 30s}\ngrants: {needy: {clock: true}}\n", "toolhost: grants changed: needy\ntoolhost: reloaded: changed needy\n"},
		{
			"grants: {needy: {gpu: true}}\nwatch: 7\n",
			"toolhost: the configuration stays as it was: grants.needy.gpu: this version has no gpu grant, expected one of ask, clock, config, env, files, http, kv, random, session, tools (" + file +
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
		r.reload(t.Context())
		require.Equal(t, test.want, log.String(), "%q", test.config)

		clock := slices.ContainsFunc(a.pageSettings(), func(s webui.Setting) bool { return s.Key == "grants.needy.clock" && s.Value == "true" })
		require.Equal(t, r.granted["needy"].Clock, clock, "the page shows the grants in force after %q", test.config)
		require.Contains(t, a.pageSettings(), webui.Setting{Key: "limits.timeout", Value: "30s", Source: file}, "and what needs a restart as it was")
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
	_, err := (&reloader{app: a}).reread()
	require.ErrorContains(t, err, "toolhost.yaml has changed since it was trusted: read it, then run toolhost trust, and send SIGHUP again")
}

// The lines that grant something say so if the file has grants already: a second mapping
// of that name would be refused.
func TestAddTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "toolhost.yaml")
	for config, want := range map[string]string{
		"watch: true\n":                    "add to " + file + ", with your own choice for each CHOOSE, as YAML:",
		"grants: {needy: {clock: true}}\n": "add to the grants of " + file + ", with your own choice for each CHOOSE, as YAML:",
	} {
		require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
		a := &app{}
		require.NoError(t, a.load(flagsOf("--config", file)))
		require.Equal(t, want, a.config.addTo())
	}
}

// The end of a run that broke names the command that says why; others say it themselves.
func TestRunEndedHint(t *testing.T) {
	for want, run := range map[string]wire.Run{
		"toolhost check bg_1 shows why":             {TaskID: "bg_1", Session: "default", Error: &wire.RunError{Kind: wire.KindTrap}},
		"toolhost check bg_1 --session a shows why": {TaskID: "bg_1", Session: "a", Error: &wire.RunError{Kind: wire.KindInternal}},
		"": {TaskID: "bg_1", Session: "a", Error: &wire.RunError{Kind: wire.KindTimeout}},
	} {
		require.Equal(t, want, diagnose(t.Context(), &runEnded{run}).Hint)
	}
	require.Empty(t, diagnose(t.Context(), &runEnded{wire.Run{}}).Hint, "canceled")
}

// The frames of a stack stand below each other.
func TestPrintTrace(t *testing.T) {
	var out bytes.Buffer
	u := &ui{out: &out, err: &out}
	u.printRun(wire.Run{Diagnosis: &wire.Diagnosis{Trace: "main.a()\n\tmain.b()\n\tmain.c()"}})
	require.Contains(t, out.String(), "  | main.a()\n  | main.b()\n  | main.c()\n")
}
