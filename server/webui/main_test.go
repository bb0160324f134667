package webui

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// zoo is a folder of plugins that each behave in one known way.
func zoo() map[string]plugintest.Plugin {
	do := plugintest.Do
	all := map[string]plugintest.Plugin{
		"echo":    {Invoke: do().Say(abi.StreamOutput, "echoing\n").Echo()},
		"sleeper": {Invoke: do().Say(abi.StreamOutput, "working\n").Progress("half way").Sleep(3600).Return(abi.InvokeToolError)},
		"reader":  {Invoke: do().Sleep(60).Use("messages.receive", `{"wait_ms":60000}`)},
		"chatty":  {Invoke: do().Say(abi.StreamOutput, "one\n").Sleep(10).Say(abi.StreamOutput, "two\n").Sleep(10).Say(abi.StreamOutput, "three\n")},
		"fails":   {Invoke: do().Say(abi.StreamError, "the file is not there").Return(abi.InvokeToolError)},
		"huge":    {Invoke: do().Say(abi.StreamOutput, strings.Repeat("0123456789abcde\n", 4<<10-10))},
		"needy":   {Invoke: do().Echo()},
		"form":    {Invoke: do().Say(abi.StreamOutput, "filled in\n").Echo()},
		"danger":  {Invoke: do().Echo()}, // needs a person's approval
		"asker":   {Invoke: do().Ask(`{"questions":{"name":{"message":"Who are you?","schema":{"type":"object","properties":{"name":{"type":"string","minLength":2}},"required":["name"]}}}}`)},
		"picture": {Invoke: do().Say(abi.StreamResult, `1`).Say(abi.StreamContent, `{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}`).Say(abi.StreamContent, `{"type":"audio","mimeType":"audio/wav","data":"UklGRg=="}`).Say(abi.StreamContent, `{"type":"text","text":"a <b>caption</b>"}`)},
		"shot":    {Invoke: do().Say(abi.StreamContent, `{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}`)},
		"crash":   {Invoke: do().Trap()},
		"waits":   {Invoke: do().Echo()}, // until a person has approved it
		"keeper":  {Invoke: do().Use("kv.set", `{"key":"draft","value":{"step":1}}`).Use("kv.set", `{"key":"note:1","value":"<b>bold</b>","ttl_ms":3600000}`)},
		"helper":  {Invoke: do().Use("tool.call", `{"tool":"echo","args":{}}`)},
		"planner": {Invoke: do().Sleep(30).Request("tool.call", `{"tool":"helper"}`).Request("tool.call", `{"tool":"fails"}`).Sleep(30).Request("tool.call", `{"tool":"sleeper"}`)},
		"hostile": {Invoke: do().Say(abi.StreamOutput, strings.Join(hostile, "\n")).Progress(hostile[0]).Echo()},
	}
	for name, p := range all {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints.SupportsBackground = true
		switch name {
		case "reader":
			m.Needs.Clock, m.Tools[0].Hints.Messages = true, true
		case "sleeper", "chatty":
			m.Needs.Clock = true
			m.Tools[0].Hints.Readonly = true
		case "form":
			m.Tools[0].InputSchema = json.RawMessage(formSchema)
		case "danger":
			m.Tools[0].Approval = abi.ApprovalRequired
		case "asker":
			m.Needs.Ask = true
		case "planner":
			m.Needs.Clock, m.Needs.Tools = true, []string{"helper", "fails", "sleeper"}
		case "helper":
			m.Needs.Tools = []string{"echo"}
		case "keeper":
			m.Needs.KV = abi.StoreWrite
		case "needy":
			m.Needs.Files = []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}}
		case "hostile":
			m.Description = strings.Join(hostile[:4], " ")
			m.Tools[0].Title, m.Tools[0].Description = hostile[0], hostile[1]
		}
		p.Manifest = m
		all[name] = p
	}
	return all
}

// formSchema is the schema of the plugin form.
const formSchema = `{"type":"object","properties":{
	"text":{"type":"string","description":"Several lines","default":"hello"},
	"word":{"type":"string","maxLength":20,"examples":["tea"]},
	"n":{"type":"integer","minimum":0,"maximum":10,"examples":[7]},
	"x":{"type":"number"},
	"yes":{"type":"boolean"},
	"on":{"type":"boolean","default":true},
	"color":{"enum":["red","green",7]},
	"tags":{"type":"array","items":{"type":"string"}},
	"key":{"type":"string","writeOnly":true,"examples":["k3y"]},
	"login":{"type":"object","properties":{"code":{"type":"string","x-secret":true}}}
},"required":["n"],"additionalProperties":false}`

// secrets returns sources for one secret of the operator and one of users.
func secrets(t testing.TB) *vault.Vault {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte(vault.NewKey()+"\n"), 0o600))
	hosts, place := []string{"api.example.com"}, host.Place{Bearer: true}
	found, err := vault.New(map[string]vault.Source{
		"example": {Scope: vault.OfUser, Hosts: hosts, Place: place}, "shared": {Env: "TOOLHOST_TEST_SHARED", Hosts: hosts, Place: place},
	}, vault.Keys(keys), nil)
	require.NoError(t, err)
	return found
}

// fixture is a page over a service.
type fixture struct {
	t       testing.TB
	service *server.Service
	page    http.Handler
	logs    *testlog.Buffer
	files   fstest.MapFS // files of the plugins
}

// retention is how long an ended run is kept.
const retention = 10 * time.Minute

// open opens a service on those plugins of the zoo. Call it in a bubble.
func open(t testing.TB, names ...string) *fixture {
	t.Helper()
	return openHost(t, nil, "", names...)
}

// openHost opens a host that shares the engine with others.
func openHost(t testing.TB, shared engine.Engine, name string, names ...string) *fixture {
	t.Helper()
	return openConfig(t, server.Config{Engine: shared, Name: name}, names...)
}

// openConfig opens a service with a configuration, on those plugins of the zoo.
func openConfig(t testing.TB, cfg server.Config, names ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, logs: &testlog.Buffer{}}
	log := slog.New(slog.NewTextHandler(f.logs, nil))
	files, all := fstest.MapFS{}, zoo()
	grants := map[string]plugins.Grant{}
	for _, name := range names {
		p, ok := all[name]
		require.True(t, ok, name)
		files[name+".wasm"] = &fstest.MapFile{Data: p.Wasm()}
		grants[name] = plugins.Grant{Clock: p.Manifest.Needs.Clock, Ask: p.Manifest.Needs.Ask, Tools: p.Manifest.Needs.Tools, KV: host.KV{Mode: p.Manifest.Needs.KV}, Env: map[string]string{"LANG": "a value nobody is shown"}}
	}
	f.files = files
	if slices.Contains(names, "waits") {
		cfg.Approvals = server.ApprovalPolicy{Ask: true, Tools: map[string]server.Decision{"waits": server.DecideAsk, "*": server.DecideAllow}}
	}
	cfg.Secrets, cfg.Version, cfg.CacheDir, cfg.Logger = secrets(t), "1.2.3", plugintest.CacheDir(), log
	cfg.Folders, cfg.Grants = []plugins.Folder{{Path: "zoo", FS: files}}, grants
	cfg.Runs = server.RunsConfig{PerSession: 64, Retention: retention}
	var err error
	f.service, err = server.Open(t.Context(), cfg)
	require.NoError(t, err)
	f.page = New(f.service, Config{
		Version: "1.2.3", Logger: log, Approvals: approvals("may approve as well"),
		Settings: func() []Setting {
			return []Setting{{"grants.needy.clock", "true", "toolhost.yaml"}, {"grants.reader.http", `[{"url":"https://a.example/*"},{"url":"https://b.example/*","secret":"token"}]`, "/etc/toolhost.yaml"}, {"limits.fuel", "1000", "toolhost.yaml"}}
		},
		Lacking: func(plugin string) (string, string) {
			return "add to toolhost.yaml:", "grants:\n  " + plugin + ":\n    files:\n      - {dir: /CHOOSE, path: /work, mode: write}\n"
		},
	})
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, f.service.Close(gone))
		if !t.Failed() {
			require.NotContains(t, f.logs.String(), "page not")
		}
	})
	return f
}

// bubble runs a test in a bubble of its own, where time is not real.
func bubble(t *testing.T, test func(t *testing.T)) { t.Helper(); synctest.Test(t, test) }

// do sends a request.
func (f *fixture) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.page.ServeHTTP(w, r)
	return w
}

// get returns a page, and requires that it exists.
func (f *fixture) get(path string) string {
	f.t.Helper()
	w := f.do("GET", path, "")
	require.Equal(f.t, http.StatusOK, w.Code, w.Body)
	require.Equal(f.t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	inspect(f.t, w.Body.String())
	return w.Body.String()
}

// post sends a form, as the page does.
func (f *fixture) post(path, form string) *httptest.ResponseRecorder {
	return f.do("POST", path, form, "Content-Type", "application/x-www-form-urlencoded", "Origin", "http://example.com", "Sec-Fetch-Site", "same-origin")
}

// spawn starts a run, and waits until it does nothing more by itself.
func (f *fixture) spawn(session, tool string) string {
	f.t.Helper()
	return f.spawnRequest(session, server.SpawnRequest{Tool: tool})
}

func (f *fixture) spawnRequest(session string, req server.SpawnRequest) string {
	f.t.Helper()
	run, err := f.service.Session(session).Spawn(f.t.Context(), req)
	require.NoError(f.t, err)
	synctest.Wait()
	return run.TaskID
}

func (f *fixture) run(id string) wire.Run {
	f.t.Helper()
	run, err := f.service.AllSessions().Run(f.t.Context(), id)
	require.NoError(f.t, err)
	return run
}

// golden compares the content of a page with a file of testdata.
func golden(t *testing.T, name, page string) {
	t.Helper()
	_, content, ok := strings.Cut(page, `<main id="main">`)
	require.True(t, ok)
	content, _, _ = strings.Cut(content, "</main>")
	ids := map[string]string{}
	content = regexp.MustCompile(`\b(bg|sc)_[a-z2-7]{26}\b`).ReplaceAllStringFunc(content, func(id string) string {
		if ids[id] == "" {
			ids[id] = strings.ToUpper(id[:2]) + string(rune('1'+len(ids)))
		}
		return ids[id]
	})
	content = regexp.MustCompile(`\b[0-9a-f]{64}\b`).ReplaceAllString(content, "DIGEST")
	content = regexp.MustCompile(`[\d.]+ [KM]iB`).ReplaceAllString(content, "SIZE")
	content = regexp.MustCompile(`(max="(?:4294967296|268435456)" value=)"\d+"`).ReplaceAllString(content, `$1"N"`)
	// What is sampled at the very moment that something happens may be before or after it.
	content = regexp.MustCompile(`(?s)<section id="history".*?</section>`).ReplaceAllString(content, "HISTORY")
	content = regexp.MustCompile(`call_[0-9a-f-]{36}`).ReplaceAllString(content, "CALL")
	content = regexp.MustCompile(`digest [0-9a-f]{12}`).ReplaceAllString(content, "digest DIGEST")
	file := filepath.Join("testdata", name+".html")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), content)
}

// args are the arguments of a call.
func args(v any) json.RawMessage {
	data, _ := json.Marshal(v)
	return data
}

// approvals is the check of a token for approvals.
func approvals(token string) *identity.ApprovalToken {
	check, err := identity.NewApprovalToken(token)
	if err != nil {
		panic(err)
	}
	return check
}
