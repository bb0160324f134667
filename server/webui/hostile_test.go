package webui

import (
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

// hostile lists texts that tools and clients may write in order to be more than text.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)' x='`,
	`</pre></main><iframe src=//evil.example></iframe>`,
	`javascript:alert(1)`,
	`<svg/onload=alert(1)>`,
	`</title><style>*{display:none}</style>`,
	`<base href="//evil.example/">`,
	`<form action="//evil.example"><input name=token>`,
	`<!--`, `]]>`, `<![CDATA[`, `&lt;script&gt;`, `&#60;b&#62;`, "{{.Args}}",
	"\x1b[31mred\x1b]0;title\x07\x1b]8;;http://evil.example\x1b\\link",
	"\u202egpj.exe\u202c \u2066isolate\u2069 \u200e\u200f\u061c",
	"zero\u200bwidth\u2060\ufeff\u00adsoft", "tags\U000e0041\U000e0042",
	"\x00nul\x08\x7f\u0085\u009b31m\u2028\u2029", "\xff\xfe not UTF-8 \xc3",
	"Z" + strings.Repeat("\u0336", 200),
	"\ndata: {\"id\":\"main\",\"html\":\"x\"}\n\nevent: put\n",
	strings.Repeat("A", 3000),
}

// What a page may contain. No text may lead to anything else.
var (
	allowedTags = strings.Fields(`html head meta title link script body a header nav p span time main section h1 h2 ul li dl dt dd div
		meter progress table thead tbody tr th td strong bdi code pre form label input button article footer h3 img textarea select option details summary svg desc path figure figcaption mark fieldset legend`)
	allowedAttrs = strings.Fields(`lang data-build charset name content rel href type src class id aria-label aria-labelledby aria-hidden aria-current
		role datetime title min max value scope data-label method action formaction maxlength required autocapitalize autocomplete spellcheck placeholder checked tabindex
		viewBox preserveAspectRatio d alt width height data-copy for rows step selected open download`)
)

// inspect refuses HTML with an element or an attribute that the templates do not contain,
// an address elsewhere, or invisible characters.
func inspect(t testing.TB, html string) {
	t.Helper()
	require.True(t, utf8.ValidString(html))
	require.Equal(t, html, string(human.Visible([]byte(html))), "all of it can be seen")
	d := xml.NewDecoder(strings.NewReader(html))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err, html)
		switch token := token.(type) {
		case xml.StartElement:
			require.Contains(t, allowedTags, token.Name.Local, html)
			for _, a := range token.Attr {
				require.Contains(t, allowedAttrs, a.Name.Local, html)
				if slices.Contains([]string{"href", "src", "action", "formaction"}, a.Name.Local) {
					require.Regexp(t, `^(/([^/]|$)|#main$|data:(application/octet-stream|image/(png|jpeg|gif|webp));base64,[A-Za-z0-9+/]*=*$)`, a.Value)
				}
			}
			if token.Name.Local == "script" {
				require.Equal(t, []xml.Attr{{Name: xml.Name{Local: "type"}, Value: "module"}, {Name: xml.Name{Local: "src"}, Value: asset("page.js")}}, token.Attr)
			}
		case xml.Comment:
			t.Fatal("a comment in a page: " + html)
		}
	}
}

// Whatever tools, agents and clients write stays text on every page.
func TestHostileTexts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "hostile", "echo", "fails")
		var ids []string
		for _, text := range hostile {
			session := "default"
			if utf8.ValidString(text) {
				session = text[:min(len(text), 200)] // the service takes any: who names sessions is a matter of doors
			}
			req := server.SpawnRequest{Tool: "hostile", Args: args(map[string]string{"x": text, text: "y"}), Title: cut(text, 30), By: text, IdempotencyKey: cut(text, 40)}
			ids = append(ids, f.spawnRequest(strings.ToValidUTF8(session, "?"), req))
		}
		_, err := f.service.Session(hostile[1]).Schedules().New(t.Context(), server.ScheduleRequest{SpawnRequest: server.SpawnRequest{Tool: "hostile", Title: hostile[0]}, Cron: "0 0 1 1 *"})
		require.NoError(t, err)
		for _, path := range []string{"/", "/ui/runs", "/ui/schedules", "/ui/plugins", "/ui/tools", "/ui/calls", "/ui/calls?tool=%22%3E%3Cscript%3E", "/ui/runs?session=%22%3E%3Cscript%3E%E2%80%AE", "/ui/schedules?session=%3Cscript%3E"} {
			f.get(path)
		}
		for _, id := range ids {
			page := f.get("/ui/runs/" + id)
			require.Contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;")
			require.Contains(t, page, "⟨U+202E⟩gpj.exe")
		}
		require.Equal(t, 404, f.do("GET", "/ui/%3Cscript%3E", "").Code)
	})
}

// FuzzRender renders a run made of any text, and its output.
func FuzzRender(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, int64(len(s)), 0.5)
	}
	f.Fuzz(func(t *testing.T, s string, n int64, p float64) {
		code := int(n)
		run := wire.Run{
			TaskID: "bg_x", Session: s, Tool: s, Title: s, By: s, ToolVersion: s, Plugin: s, PluginVersion: s, Kind: s, IdempotencyKey: s, Origin: wire.Origin(s), ArgsIncomplete: n%2 == 0, Args: s,
			Status: wire.StatusRunning, Attempt: 1, CreatedAt: time.Unix(n%1e10, 0), StartedAt: time.Unix(n%1e9, 0), ScheduledFor: time.Unix(n%1e8, 0), DeadlineSeconds: p,
			Stopping: &wire.Stopping{By: s, Reason: s}, ScheduleID: "sc_x",
			Detail: s, Progress: &wire.Progress{Done: p, Total: float64(n), Message: s, Unit: s}, OutputBytes: n,
			Narration: s, Cost: &wire.Cost{Fuel: n, CPUSeconds: p}, Parent: "bg_y", Diagnosis: &wire.Diagnosis{Reason: s, Trace: s, LastWords: s},
		}
		renderRun(t, run, []byte(s))
		run.Status, run.Summary, run.ExitCode, run.ArtifactError, run.FinishedAt = wire.StatusFailed, s, &code, s, time.Unix(n, 0)
		run.Error = &wire.RunError{Kind: wire.ErrorKind(s), Message: s}
		renderRun(t, run, []byte(s))
		problems, err := render("problems", newProblems([]wire.FileProblem{{File: s, Error: s}}))
		require.NoError(t, err)
		inspect(t, problems)
		schedule, err := render("schedules-row", wire.Schedule{ScheduleID: "sc_x", Session: s, Tool: s, Title: s, Cron: s, Timezone: s, DisabledReason: s, Enabled: n%2 == 0})
		require.NoError(t, err)
		inspect(t, schedule)
		renderTool(t, s)
		clients, err := render("clients", []wire.ClientConnection{{Protocol: s, Transport: s, Client: s, ClientVersion: s, Revision: s, User: s, Session: s, InFlight: int(n)}})
		require.NoError(t, err)
		inspect(t, clients)
		renderFigures(t, s, n)
		renderReach(t, s, n)
		renderAudit(t, s, n)
		renderPlugin(t, s)
		renderLogs(t, run, s)
	})
}

// renderReach renders approvals, stores and secrets made of any text.
func renderReach(t *testing.T, s string, n int64) {
	at := time.Unix(n%1e9, 0)
	waiting := wire.WaitingCall{TaskID: "bg_x", Session: s, By: s, Tool: s, Description: s, Plugin: s, PluginVersion: s, ToolVersion: s, Args: s, ArgsCut: true, Grants: []string{s}, Fingerprint: s, AskedAt: at, ExpiresAt: at}
	list := approvalList{[]wire.WaitingCall{waiting}, int(n), s, []wire.KeptApproval{{Tool: s, Caller: s, ArgsDigest: s, Session: s, By: s, At: at, ExpiresAt: at, InForce: n%2 == 0}}, n%2 == 0}
	store := storeView{Plugin: s, Session: s, Prefix: s, Values: []wire.Value{{Key: s, WrittenAt: at, ExpiresAt: at}}, Next: s, Key: s, Value: newResultView([]byte(s))}
	for name, data := range map[string]any{
		"approvals": list, "kept": list, "asked": int(n), "stores": storeList{[]wire.KVStore{{Plugin: s, Session: s, ChangedAt: at}}, 1}, "store": store, "stored": store,
		"secrets": secretList{s, []wire.Secret{{Name: s, Scope: wire.SecretScope(s), Hosts: []string{s}}, {Name: s, Scope: wire.SecretOfUser, Set: true}}, true},
	} {
		html, err := render(name, data)
		require.NoError(t, err)
		inspect(t, html)
	}
}

// renderAudit renders events made of any text and number.
func renderAudit(t *testing.T, s string, n int64) {
	event := audit.Event{
		Seq: n, At: time.Unix(n%1e9, 0), Kind: audit.Kind(s), Session: s, User: s, By: s, ID: s, Parent: s, Tool: s, Plugin: s, Digest: s, Action: s, Outcome: s, Code: s, Reason: s,
		Names: []string{s, s}, Fuel: n, Millis: n, DryRun: n%2 == 0, Count: n, Method: s, Host: s, Status: int(n), Sent: n, Received: n,
	}
	f := auditFilter{Kind: s, Session: s, Tool: s, Plugin: s, ID: s, Before: n}
	v := auditList{Filter: f, Events: []auditRow{{event}, {audit.Event{User: s}}}, Next: f.at(n), Newest: f.at(0)}
	for _, name := range []string{"audit-filter", "audit"} {
		html, err := render(name, v)
		require.NoError(t, err)
		inspect(t, html)
	}
}

// renderPlugin renders a plugin made of any text.
func renderPlugin(t *testing.T, s string) {
	plugin := wire.Plugin{
		Name: s, Version: s, Description: s, File: s, Digest: s, Needs: []string{s}, Grants: []string{s}, Missing: []string{s},
		Folders: []wire.Folder{{Dir: s, Path: s}}, Tools: []wire.PluginTool{{Name: s, Title: s, Description: s}},
	}
	rules := rulesOf("p", []Setting{{"grants.p." + s, s, s}, {"grants.p.x", string(args([]string{s})), s}})
	html, err := render("plugins", catalog{Plugins: []pluginView{{plugin, rules, s, s}}, Reloaded: &reloadView{s, []string{s}}})
	require.NoError(t, err)
	inspect(t, html)
}

// renderLogs renders lines made of any text, found by a part of it.
func renderLogs(t *testing.T, run wire.Run, s string) {
	f := logFilter{Text: s, Run: s, Tool: s, Plugin: s, Session: s, Before: s}
	find := newFinder(cut(s, 5))
	v := logList{Filter: f, Runs: []runLog{{run, find.in(s, 5), f.with(s, s)}, {run, []logLine{find.mark(s)}, ""}}, Next: f.with(s, s), Newest: f.with("", s)}
	for _, name := range []string{"log-filter", "logs"} {
		html, err := render(name, v)
		require.NoError(t, err)
		inspect(t, html)
	}
}

// renderFigures renders calls and minutes made of any text and number.
func renderFigures(t *testing.T, s string, n int64) {
	call := wire.CallRecord{
		Tool: s, Kind: s, Plugin: s, PluginVersion: s, Session: s, At: time.Unix(n%1e9, 0), Outcome: abi.Kind(s), Code: wire.Code(s), TaskID: "bg_x", OuterID: "bg_" + s, OuterTool: s,
		Cost: &wire.Cost{Fuel: n}, Diagnosis: &wire.Diagnosis{Reason: s, Trace: s, LastWords: s},
	}
	minute := wire.Minute{At: time.Unix(n%1e9, 0), RunsActive: int(n), RunsFailed: n, Calls: n, CallErrors: n, MemoryPeak: n, CPUSeconds: float64(n)}
	for name, data := range map[string]any{
		"calls": []callRow{{call}}, "call-filter": callFilter{Tool: s}, "history": newHistory(s, []wire.Minute{minute, {}}),
		"call-tools": callFigures{Tools: []toolRow{{ToolFigures: wire.ToolFigures{Tool: s, Plugin: s, Errors: map[string]int64{s: n}, Fuel: n}, Why: s}}},
	} {
		html, err := render(name, data)
		require.NoError(t, err)
		inspect(t, html)
	}
}

// renderTool renders a tool made of any text, filled in with it, and its result.
func renderTool(t *testing.T, s string) {
	properties := map[string]any{s: map[string]any{"type": "string", "description": s, "default": s}}
	for i, p := range []map[string]any{
		{"type": "number", "default": 1.5, "minimum": 0}, {"type": "boolean", "default": true}, {"enum": []any{s, 1, nil}}, {"type": "array", "default": []string{s}},
		{"type": "string", "writeOnly": true}, {"type": s}, {"type": "string", "format": "date"}, {"type": "object", "x-secret": true},
		{"type": "object", "description": s, "properties": map[string]any{s: map[string]any{"type": "object", "properties": map[string]any{s: map[string]any{"type": "string", "description": s}}}}},
	} {
		properties[string(rune('a'+i))] = p
	}
	v := newToolView(wire.Definition{
		Name: s, Title: s, Description: s, Plugin: s, SupportsBackground: true, Approval: abi.ApprovalRequired,
		InputSchema: args(map[string]any{"type": "object", "properties": properties, "required": []string{s}}),
	})
	typed := url.Values{argsField: {s}}
	for _, f := range v.Form.Fields {
		typed.Set(argPrefix+f.Path, s)
	}
	_, _ = v.Form.fill(typed)
	v.Session, v.Title, v.Problem, v.When = s, s, s, when{s, s, s, wire.Overlap(s)}
	v.Result = &callResult{Failed: s, Code: s, Output: s, Dropped: 1, Content: newBlocks([]abi.Block{{Type: "text", Text: s}})}
	for _, section := range v.page().sections {
		html, err := render(section.id, section.data)
		require.NoError(t, err)
		inspect(t, html)
	}
	html, err := render("tools", []wire.Definition{v.Definition})
	require.NoError(t, err)
	inspect(t, html)
}

// renderRun renders everything that is shown of a run.
func renderRun(t *testing.T, run wire.Run, output []byte) {
	chunk := server.Chunk{Offset: 7, Data: output, End: 7 + int64(len(output)), Attempt: run.Attempt}
	text := string(output)
	question := abi.Question{Message: text, Schema: args(map[string]any{"type": "object", "properties": map[string]any{text: map[string]any{"type": "string", "description": text, "default": text}}})}
	v := runView{
		Run: run, Result: newResultView(output), Output: split(chunk, 3), Questions: newQuestions(run.TaskID, map[string]abi.Question{"q.1": question}),
		Content: newBlocks([]abi.Block{{Type: text, Text: text, MIMEType: text, Name: text, URI: text}, {Type: "image", Data: output, MIMEType: "image/png", Name: text}, {Type: "image", Data: output, MIMEType: text}}),
		Repeats: true,
	}
	for _, s := range v.sections() {
		html, err := render(s.id, s.data)
		require.NoError(t, err)
		inspect(t, html)
	}

	for _, kind := range []tableKind{tableActive, tableEnded, tableAll} {
		table := newTable([]wire.Run{run}, kind)
		table.Back = &runFilter{Session: text, Tool: text, Text: text}
		html, err := render("run-table", table)
		require.NoError(t, err)
		inspect(t, html)
	}
}

// Pages have bounds, however much there is to show.
func TestSizes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "huge", "echo")
		id := f.spawn("default", "huge")
		page := f.get("/ui/runs/" + id)
		require.Contains(t, page, "This is the end of it.")
		require.Less(t, len(page), maxOutput+10<<10)
		require.Contains(t, page, "0123456789abcde\n</span>")
		id = f.spawnRequest("default", server.SpawnRequest{Tool: "echo", Args: args(map[string]string{"x": strings.Repeat("ä", 20<<10)})})
		synctest.Wait()
		page = f.get("/ui/runs/" + id)
		require.Less(t, len(page), maxShown+8<<10)
		require.Contains(t, page, "This is its beginning: the whole result has 40.0 KiB.")
		raw := f.do("GET", "/ui/runs/"+id+"/artifacts/result.json", "")
		require.Greater(t, raw.Body.Len(), 40<<10)
	})
}
