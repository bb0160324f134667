package webui

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

// The audit log is read by page and filter, and records what is done on the page.
func TestAuditPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := openConfig(t, server.Config{AuditDir: t.TempDir()}, "echo", "fails")
		_, _ = f.service.Call(t.Context(), server.Request{Session: "ana", Tool: "fails", Args: []byte(`{"key":"hunter2"}`)})
		_, _ = f.service.Call(t.Context(), server.Request{Session: "ana", Tool: "</td><script>alert(1)</script>\u202e"})
		f.submit("echo", http.StatusOK, url.Values{"json": {`{"key":"hunter2"}`}})
		id := f.spawn("bo", "echo")
		time.Sleep(time.Second)
		synctest.Wait()

		page := f.get("/ui/audit")
		golden(t, "audit", page)
		require.NotContains(t, page, "hunter2")
		require.Contains(t, page, "⟨U+202E⟩")
		for query, want := range map[string]int{
			"kind=call": 3, "kind=call&session=ana": 2, "kind=grant&plugin=echo": 1, "tool=echo": 3, "id=" + id: 2, "session=nobody": 0, "kind=call&tool=%3C%2Ftd%3E": 0, "before=3": 2,
		} {
			found := f.get("/ui/audit?" + query)
			require.Equal(t, want, strings.Count(found, `<tr id="event-`), query)
		}
		require.Contains(t, f.get("/ui/runs/"+id), `<a href="/ui/audit?id=`+id+`">`)
		require.NotContains(t, f.get("/ui/audit?before=3"), `id="live"`, "it does not change")
		for _, bad := range []string{"kind=x", "before=x", "before=-1", "tool=" + strings.Repeat("x", 400)} {
			require.Equal(t, http.StatusBadRequest, f.do("GET", "/ui/audit?"+bad, "").Code, bad)
		}

		for range maxEvents {
			_, _ = f.service.Call(t.Context(), server.Request{Session: "ana", Tool: "fails"})
		}
		page = f.get("/ui/audit?session=ana")
		require.Equal(t, maxEvents, strings.Count(page, `<tr id="event-`))
		_, older, _ := strings.Cut(page, `<a href="/ui/audit?before=`)
		older, _, _ = strings.Cut(older, `"`)
		page = f.get("/ui/audit?before=" + strings.ReplaceAll(older, "&amp;", "&"))
		require.Equal(t, 2, strings.Count(page, `<tr id="event-`))
		require.Contains(t, page, `<a href="/ui/audit?session=ana">Newest</a>`)
	})
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		require.Contains(t, f.get("/ui/audit"), "This server keeps no audit log.")
	})
}

// The outcome of an event is shown by a sign, not by color alone.
func TestAuditRow(t *testing.T) {
	for name, test := range map[string]struct {
		event   audit.Event
		state   state
		details string
	}{
		"a call":            {audit.Event{Kind: audit.Call, Outcome: "success", Fuel: 1200, Millis: 3}, state{"good", "✓", "success"}, "1,200 units of fuel, 3 ms"},
		"a call that fails": {audit.Event{Kind: audit.Call, Outcome: "tool_error", Code: "not_found"}, state{"bad", "✗", "not found"}, ""},
		"egress":            {audit.Event{Kind: audit.Egress, Method: "GET", Host: "example.com:443", Status: 200, Received: 2048, Names: []string{"token"}}, state{}, "GET example.com:443, status 200, 2.0 KiB received, token"},
		"refused egress":    {audit.Event{Kind: audit.Egress, Host: "evil.example", Code: "denied"}, state{"bad", "✗", "denied"}, "evil.example"},
		"a held call":       {audit.Event{Kind: audit.Call, Outcome: audit.Held}, state{"live", "▶", "waits for approval"}, ""},
		"a refusal":         {audit.Event{Kind: audit.Refused, Reason: "not today"}, state{"bad", "✗", "refused"}, "not today"},
		"an approval":       {audit.Event{Kind: audit.Approved}, state{"good", "✓", "approved"}, ""},
		"a canceled run":    {audit.Event{Kind: audit.Ended, Outcome: string(wire.StatusCanceled)}, state{"off", "■", "canceled"}, ""},
		"lost events":       {audit.Event{Kind: audit.Lost, Count: 3}, state{"bad", "✗", "lost"}, "count 3"},
		"a start":           {audit.Event{Kind: audit.Opened}, state{}, ""},
	} {
		row := auditRow{test.event}
		require.Equal(t, test.state, row.State(), name)
		require.Equal(t, test.details, strings.Join(row.Details(), ", "), name)
	}
}
