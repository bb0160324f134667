package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/webui"
	"github.com/toolhost/toolhost/server/wire"
)

// A reload prints each setting that has changed, and what needs a restart. What it refuses
// changes nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	m := plugintest.Manifest("needy")
	m.Needs.Clock = true
	require.NoError(t, os.WriteFile(filepath.Join(dir, "needy.wasm"), plugintest.Plugin{Manifest: m, Invoke: plugintest.Do()}.Wasm(), 0o600))
	file := filepath.Join(t.TempDir(), "toolhost.yaml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte("plugins: ["+dir+"]\n"+text), 0o600))
	}
	write("limits: {timeout: 30s}\n")

	var log bytes.Buffer
	a := &app{ui: ui{out: &log, err: &log}}
	require.NoError(t, a.load(flagsOf("--config", file)))
	s, done, err := a.open(t.Context(), func(cfg *server.Config) { cfg.OnReload = a.reloaded })
	require.NoError(t, err)
	defer done()

	r := &reloader{app: a, service: s, serves: true}
	const later = "toolhost: configuration, in force only after a restart: "
	for _, test := range []struct{ config, want string }{
		{"limits: {timeout: 30s}\n", "toolhost: reloaded: nothing has changed in the plugins and the configuration\n"},
		{
			"limits: {timeout: 31s}\nwatch: false\ntoken: a-new-token\nhost: {calls: 7}\n",
			"toolhost: configuration: limits.timeout: 30s → 31s\ntoolhost: configuration: watch: true → false\n" +
				later + "host.calls: 256 → 7\n" + later + "token: changed\n",
		},
		{
			"grants: {needy: {clock: true}}\nsecrets: {key: {command: [pass, hunter2], hosts: [example.com], bearer: true}}\n",
			"toolhost: reloaded: changed needy\n" +
				"toolhost: configuration: grants.needy.clock: none → true\ntoolhost: configuration: limits.timeout: 31s → 2m\n" +
				"toolhost: configuration: secrets.key.bearer: none → true\ntoolhost: configuration: secrets.key.command: changed\n" +
				"toolhost: configuration: secrets.key.hosts: none → [\"example.com\"]\ntoolhost: configuration: watch: false → true\n",
		},
		{
			"grants: {needy: {gpu: true}}\nwatch: 7\nlimits: {timeout: 1s}\n",
			"toolhost: reload refused, nothing has changed: grants.needy.gpu: this version has no gpu grant, expected one of ask, clock, config, env, files, http, kv, random, session, tools (" + file +
				"); watch: expected true or false, found 7 (" + file + ")\n",
		},
		{
			"approvals: {tools: {\"[\": allow}}\nlimits: {timeout: 1s}\n",
			"toolhost: reload refused, nothing has changed: approvals.tools.[: expected the name of a tool, or a pattern such as files_* (" + file + ")\n",
		},
		{
			"serve: {listen: \"0.0.0.0:1\"}\nlimits: {timeout: 1s}\n",
			"toolhost: reload refused, nothing has changed: serve.listen: other machines could reach 0.0.0.0:1, and no token is configured: listen on 127.0.0.1 or localhost, set TOOLHOST_TOKEN to a long random token, or set oauth.issuer and oauth.audience (" + file + ")\n",
		},
		{
			"limits: {timeout: 30s}\ngrants: {needy: {env: {KEY: hunter2}}}\n",
			"toolhost: reloaded: changed needy\n" +
				"toolhost: problem: " + dir + "/needy.wasm: not granted what it needs: clock\n" +
				"toolhost: add to the grants of " + file + ", with your own choice for each CHOOSE, as YAML:\ngrants:\n  needy:\n    clock: true\n" +
				"toolhost: configuration: grants.needy.clock: true → none\ntoolhost: configuration: grants.needy.env: changed\n" +
				"toolhost: configuration: limits.timeout: 2m → 30s\n" +
				"toolhost: configuration: secrets.key.bearer: true → none\ntoolhost: configuration: secrets.key.command: changed\n" +
				"toolhost: configuration: secrets.key.hosts: [\"example.com\"] → none\n",
		},
	} {
		write(test.config)
		log.Reset()
		before := operatorPage{a}.settings()
		dry, dryErr := r.reload(server.WithDryRun(t.Context()))
		require.Equal(t, before, operatorPage{a}.settings(), "a dry run changes nothing")
		log.Reset()
		out, err := r.reload(t.Context())
		require.Equal(t, test.want, log.String(), "%q", test.config)
		require.Equal(t, strings.Contains(test.want, "refused"), err != nil)
		if dryErr == nil && err == nil {
			require.Equal(t, out.Changed, dry.Changed)
			require.Equal(t, out.Restart, dry.Restart)
		}
		if err != nil {
			require.Equal(t, before, operatorPage{a}.settings(), "what is refused changes nothing")
		}
		require.NotContains(t, log.String(), "hunter2")
		require.NotContains(t, log.String(), "a-new-token")
	}
	require.Contains(t, operatorPage{a}.settings(), webui.Setting{Key: "limits.timeout", Value: "30s", Source: file})
	require.Contains(t, operatorPage{a}.settings(), webui.Setting{Key: "host.calls", Value: "256", Source: "default"}, "what needs a restart is as it was")

	write("approvals: {tools: {files_delete: ask}}\ngrants: {needy: {env: {KEY: hunter2}}}\n")
	_, err = r.reload(t.Context())
	require.NoError(t, err)
	require.Contains(t, log.String(), "toolhost: approvals.tools.files_delete: no such tool: \"files_delete\" ("+file+")\n")
	require.Contains(t, operatorPage{a}.settings(), webui.Setting{Key: "approvals.tools", Value: `{"files_delete":"ask"}`, Source: file}, "decisions are not secret")
	require.Contains(t, operatorPage{a}.settings(), webui.Setting{Key: "grants.needy.env", Value: "KEY=…", Source: file})
}

// Each setting that is live applies at a reload, and none that needs a restart does: that
// is what the table says of it.
func TestLiveSettings(t *testing.T) {
	values := map[string]any{
		"plugins": []any{t.TempDir()}, "starter": []any{"todos"}, "log.level": "debug", "background.park": "all", "background.end_session": "all",
		"listing": map[string]any{"a": "search"}, "approve": "ask", "approvals.by": "operator", "approvals.tools": map[string]any{"a": "ask"}, "interpret": []any{"a"},
		"secrets_key": "/nowhere", "addr": "127.0.0.1:1", "exec": true, "watch": false, "background.park_after": "1m",
	}
	service, err := server.Open(t.Context(), server.Config{})
	require.NoError(t, err)
	defer service.Close(t.Context())
	const fixed = "cannot change while the Service is open"
	_, err = service.Reconfigure(t.Context(), func(c *server.Config) { c.CacheDir = "/another" })
	require.ErrorContains(t, err, fixed)
	for _, s := range newLoaded().table {
		if s.effect != live || s.kind.each != nil || slices.Contains([]string{"trust", "require_signature", "trusted_root", "registry.plain_http"}, s.key) { // they are no numbers
			continue
		}
		t.Run(s.key, func(t *testing.T) {
			value, ok := values[s.key]
			switch {
			case ok:
			case reflect.TypeOf(s.to).Elem() == reflect.TypeFor[time.Duration]():
				value = "17m"
			default:
				value = 4321
			}

			before, after := newLoaded(), newLoaded()
			i := slices.IndexFunc(after.table, func(other setting) bool { return other.key == s.key })
			require.NoError(t, s.kind.set(reflect.ValueOf(after.table[i].to).Elem(), value))
			require.False(t, reflect.DeepEqual(reflect.ValueOf(before.table[i].to).Elem().Interface(), reflect.ValueOf(after.table[i].to).Elem().Interface()))

			began, now := before.server, before.server
			before.apply(&began)
			after.apply(&now)
			outside := []string{"log.level", "addr", "watch", "serve.drain", "secrets_key", "approve"} // not of server.Config, or a function
			if slices.Contains(outside, s.key) {
				return
			}
			began.Approve, now.Approve = nil, nil
			require.NotEqual(t, fmt.Sprintf("%+v", began), fmt.Sprintf("%+v", now), "it would be announced, and not apply")
			if _, err := service.Reconfigure(t.Context(), after.apply); err != nil {
				require.NotContains(t, err.Error(), fixed)
			}
		})
	}
}

// A file that is repaired is announced, and a plugin that was granted nothing is no problem.
func TestReloadedProblems(t *testing.T) {
	dir := t.TempDir()
	wasm := func(m *abi.Manifest) []byte { return plugintest.Plugin{Manifest: m, Invoke: plugintest.Do()}.Wasm() }
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	box, needy := wasm(plugintest.Manifest("box")), plugintest.Manifest("needy")
	needy.Needs.Clock = true
	write("box.wasm", box)

	var log bytes.Buffer
	a := &app{ui: ui{out: &log, err: &log}, environ: []string{"TOOLHOST_PLUGINS=" + dir}}
	require.NoError(t, a.load(flagsOf()))
	s, done, err := a.open(t.Context(), func(cfg *server.Config) { cfg.OnReload = a.reloaded })
	require.NoError(t, err)
	defer done()
	r := &reloader{app: a, service: s}
	reload := func() string {
		log.Reset()
		_, err := r.reload(t.Context())
		require.NoError(t, err)
		return log.String()
	}

	_, err = s.Call(t.Context(), server.Request{Session: "s", Tool: "box", Args: []byte("{}")}) // a plugin in use stays
	require.NoError(t, err)
	write("box.wasm", box[:20])
	require.Contains(t, reload(), "toolhost: problem: "+dir+"/box.wasm: ")
	write("box.wasm", box)
	require.Equal(t, "toolhost: reloaded: solved the problem of "+dir+"/box.wasm\n", reload())

	write("needy.wasm", wasm(needy))
	text := reload()
	require.Contains(t, text, "toolhost: reloaded: added needy; 1 plugin not granted\n")
	require.Contains(t, text, "  needy:\n    clock: true")
	require.NotContains(t, text, "problem")
}

// A configuration that was trusted and has changed, or is gone, does not take the grants
// away.
func TestReloadUntrusted(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("toolhost.yaml", []byte("watch: true\n"), 0o600))
	var out bytes.Buffer
	a := &app{ui: ui{out: &out, err: &out}}
	require.NoError(t, trustFile(&a.ui, trustStore(userData()), nil))
	require.NoError(t, a.load(flagsOf()))
	r := &reloader{app: a}
	seen := r.look()

	require.NoError(t, os.WriteFile("toolhost.yaml", []byte("watch: false\n"), 0o600))
	_, err := r.reread()
	require.ErrorContains(t, err, "toolhost.yaml has changed since it was trusted: read it, then run toolhost trust")
	changed := r.look()
	require.NotEqual(t, seen, changed)
	require.NoError(t, trustFile(&a.ui, trustStore(userData()), nil))
	require.NotEqual(t, changed, r.look(), "that it is trusted now is noticed")
	next, err := r.reread()
	require.NoError(t, err)
	require.False(t, next.watch)

	require.NoError(t, os.Remove("toolhost.yaml"))
	_, err = r.reread()
	require.ErrorContains(t, err, "toolhost.yaml is missing: restore it, or restart without it")
	a.inForce.Store(next)
	require.Empty(t, r.look(), "watch is off")
}

// Of two configurations the last one that has a lock gives it. If that lock is removed, its
// file still does: the message names it, and what it accepted stays in force. The lock next
// to the other configuration counts only after a restart.
func TestReloadRemovedLock(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	require.NoError(t, os.Mkdir(userConfig(), 0o700))
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "box.wasm"), plugintest.Plugin{Manifest: plugintest.Manifest("box"), Invoke: plugintest.Do()}.Wasm(), 0o600))
	write := func(file, text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	const nothing = "version: 1\nplugins: []\n"
	own, other := filepath.Join(userConfig(), "toolhost.yaml"), filepath.Join(t.TempDir(), "other.yaml")
	first, second := filepath.Join(userConfig(), "toolhost.lock"), filepath.Join(filepath.Dir(other), "toolhost.lock")
	write(own, "limits: {timeout: 30s}\n")
	write(other, "watch: false\n")
	write(first, nothing)

	var log bytes.Buffer
	a := &app{ui: ui{out: &log, err: &log}, environ: []string{"TOOLHOST_PLUGINS=" + folder, "TOOLHOST_CONFIG=" + other}}
	require.NoError(t, a.load(flagsOf()))
	s, done, err := a.open(t.Context(), func(cfg *server.Config) { cfg.OnReload = a.reloaded })
	require.NoError(t, err)
	defer done()
	require.Empty(t, s.Plugins())
	r := &reloader{app: a, service: s}
	reload := func() {
		t.Helper()
		log.Reset()
		_, err := r.reload(t.Context())
		require.NoError(t, err)
		require.Empty(t, s.Plugins(), "the lock accepts none")
	}

	require.NoError(t, os.Remove(first))
	reload()
	require.Contains(t, log.String(), first+": it is gone: what it accepted stays in force until a restart")
	write(second, "version: 1\nplugins: [{}]\n")
	reload()
	require.NotContains(t, log.String(), second)
	write(first, nothing)
	require.NoError(t, os.Remove(second))
	reload()
	require.Equal(t, own, r.now().lockedConfig())
}

// A configuration that nobody trusts, and that appears after the start, is ignored with a
// notice, as at the start. Reloads of what is in force work as before.
func TestReloadAppeared(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	require.NoError(t, os.Mkdir(userConfig(), 0o700))
	own := filepath.Join(userConfig(), "toolhost.yaml")
	write := func(file, text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(own, "limits: {timeout: 30s}\n")
	var log bytes.Buffer
	a := &app{ui: ui{out: &log, err: &log}}
	require.NoError(t, a.load(flagsOf()))
	s, done, err := a.open(t.Context(), nil)
	require.NoError(t, err)
	defer done()
	r := &reloader{app: a, service: s}

	write("toolhost.yaml", "limits: {timeout: 1s}\n")
	here, err := realPath("toolhost.yaml")
	require.NoError(t, err)
	write(own, "limits: {timeout: 31s}\n")
	_, err = r.reload(t.Context())
	require.NoError(t, err)
	notice := "toolhost: ignored " + here + ", which is not trusted: read it, then run toolhost trust\n"
	require.Equal(t, notice+"toolhost: configuration: limits.timeout: 30s → 31s\n", log.String())

	log.Reset()
	write(own, "limits: {timeout: 32s}\n")
	_, err = r.reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, "toolhost: configuration: limits.timeout: 31s → 32s\n", log.String(), "it is announced once")

	require.NoError(t, trustFile(&a.ui, trustStore(userData()), nil))
	_, err = r.reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Second, r.now().server.Limits.Timeout)
	write("toolhost.yaml", "limits: {timeout: 2s}\n")
	_, err = r.reload(t.Context())
	require.ErrorContains(t, err, here+" has changed since it was trusted", "it is in force")
}

// A configuration that is trusted while a server runs brings its lock along, and the next
// reloads apply what is trusted then, with that lock in force.
func TestReloadTrusted(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("plugins", 0o700))
	require.NoError(t, os.WriteFile("plugins/box.wasm", plugintest.Plugin{Manifest: plugintest.Manifest("box"), Invoke: plugintest.Do()}.Wasm(), 0o600))
	var log bytes.Buffer
	a := &app{ui: ui{out: &log, err: &log}}
	require.NoError(t, a.load(flagsOf()))
	s, done, err := a.open(t.Context(), func(cfg *server.Config) { cfg.OnReload = a.reloaded })
	require.NoError(t, err)
	defer done()
	r := &reloader{app: a, service: s}
	reload := func(config string) {
		t.Helper()
		require.NoError(t, os.WriteFile("toolhost.yaml", []byte(config), 0o600))
		require.NoError(t, trustFile(&a.ui, trustStore(userData()), nil))
		_, err := r.reload(t.Context())
		require.NoError(t, err)
	}

	require.NoError(t, os.WriteFile("toolhost.lock", []byte("version: 1\nplugins: []\n"), 0o600))
	reload("plugins: [plugins]\n")
	require.Empty(t, s.Plugins())
	require.Contains(t, log.String(), "plugins/box.wasm: the plugin box is not in toolhost.lock")
	reload("plugins: [plugins]\nlimits: {timeout: 31s}\n")
	require.Contains(t, log.String(), "limits.timeout: 2m → 31s")
	require.Empty(t, s.Plugins())
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
		require.Equal(t, want, diagnose(t.Context(), &runError{run}).Hint)
	}
	require.Empty(t, diagnose(t.Context(), &runError{wire.Run{}}).Hint, "canceled")
}

// A run that waits for its user names the command that answers.
func TestPrintQuestions(t *testing.T) {
	var out bytes.Buffer
	u := &ui{out: &out, err: &out}
	u.printRun(wire.Run{TaskID: "bg_1", Session: "a", Questions: map[string]abi.Question{"name.1": {Message: "Who are you?"}}})
	require.Contains(t, out.String(), "  waits for its user: Who are you?\n  to answer: toolhost wait bg_1 --session a\n")
}

// The frames of a stack, and the last words of a plugin, stand below each other.
func TestPrintTrace(t *testing.T) {
	var out bytes.Buffer
	u := &ui{out: &out, err: &out}
	u.printRun(wire.Run{Diagnosis: &wire.Diagnosis{Trace: "main.a()\n\tmain.b()\n\tmain.c()", LastWords: "panic: no | main.d()"}})
	require.Contains(t, out.String(), "  | main.a()\n  | main.b()\n  | main.c()\n")
	require.Contains(t, out.String(), "  | panic: no\n  | main.d()\n")
}
