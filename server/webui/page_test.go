package webui

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// Each page as a browser without JavaScript shows it. testdata has the expected contents.
func TestPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo", "sleeper", "fails", "needy")
		golden(t, "empty", f.get("/"))
		golden(t, "empty-runs", f.get("/ui/runs"))
		golden(t, "empty-schedules", f.get("/ui/schedules"))

		ended := f.spawnRequest("ana", server.SpawnRequest{Tool: "echo", Args: args(map[string]any{"n": 1}), Title: "Say it again"})
		time.Sleep(time.Minute)
		failed := f.spawn("default", "fails")
		time.Sleep(90 * time.Second)
		running := f.spawnRequest("bo", server.SpawnRequest{Tool: "sleeper", Args: args(map[string]any{"api_token": "hunter2"})})
		time.Sleep(10 * time.Second)
		_, err := f.service.Session("ana").Schedules().New(t.Context(), server.ScheduleRequest{SpawnRequest: server.SpawnRequest{Tool: "echo", Title: "Each night"}, Cron: "0 3 * * *", Timezone: "Europe/Zurich"})
		require.NoError(t, err)
		golden(t, "overview", f.get("/"))
		golden(t, "runs", f.get("/ui/runs"))
		golden(t, "running", f.get("/ui/runs/"+running))
		golden(t, "ended", f.get("/ui/runs/"+ended))
		golden(t, "failed", f.get("/ui/runs/"+failed))
		golden(t, "schedules", f.get("/ui/schedules"))
		golden(t, "plugins", f.get("/ui/plugins"))
		for _, path := range []string{"/ui/runs/" + running, "/ui/plugins"} {
			require.NotContains(t, f.get(path), "hunter2")
			require.NotContains(t, f.get(path), "a value nobody is shown")
		}
	})
}

// However many problems there are, and however long, the page shows only as many as
// people look at, and says how many there are.
func TestManyProblems(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, test := range []struct {
		n    int
		head string
		more string
	}{
		{1, " 1 problem<", ""},
		{maxProblems, " 50 problems<", ""},
		{maxProblems + 1, " 51 problems<", "<p>1 more are not shown"},
		{5000, " 5,000 problems<", "<p>4,950 more are not shown"},
	} {
		all := slices.Repeat([]wire.FileProblem{{File: long, Error: long}}, test.n)
		html, err := render("problems", newProblems(all))
		require.NoError(t, err)
		require.Equal(t, min(test.n, maxProblems), strings.Count(html, "<li>"))
		require.Less(t, len(html), (2*maxProblem+200)*maxProblems)
		require.Contains(t, html, test.head)
		if test.more == "" {
			require.NotContains(t, html, "not shown")
		}
		require.Contains(t, html, test.more)
	}
}

// The runs of all sessions come page by page, and can be told apart.
func TestRunsPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo", "sleeper")
		var ids []string
		for i := range rowsOfPage + 3 {
			ids = append(ids, f.spawn([]string{"ana", "bo/phone"}[i%2], "echo"))
		}
		active := f.spawn("ana", "sleeper")
		first := f.get("/ui/runs")
		require.Equal(t, rowsOfPage, strings.Count(first, "<tr id="))
		require.Contains(t, first, active)
		older := "/ui/runs?before=" + ids[4]
		require.Contains(t, first, `<a href="`+older+`" rel="next">Older</a>`)
		second := f.get(older)
		require.Equal(t, 4, strings.Count(second, "<tr id="))
		require.Contains(t, second, `<a href="/ui/runs">Newest</a>`)
		require.NotContains(t, second, "Older")

		require.Equal(t, 26, strings.Count(f.get("/ui/runs?session=bo%2fphone"), "<tr id="))
		only := f.get("/ui/runs?session=ana&active=true")
		require.Equal(t, 1, strings.Count(only, "<tr id="))
		require.Contains(t, only, `value="ana"`)
		require.Contains(t, only, "<option selected>active</option>")
		require.Contains(t, f.get("/ui/runs?session=nobody"), "No runs match.")
		require.Equal(t, http.StatusBadRequest, f.do("GET", "/ui/runs?before=x", "").Code)
		require.Equal(t, http.StatusBadRequest, f.do("GET", "/ui/runs?session="+strings.Repeat("x", 301), "").Code)
	})
}

// Runs are found by their properties.
func TestSearch(t *testing.T) {
	bubble(t, func(t *testing.T) { // which begins at midnight, 2000-01-01
		f := open(t, "echo", "fails", "sleeper")
		good := f.spawnRequest("ana", server.SpawnRequest{Tool: "echo", Title: "Count the <b>Sheep"})
		time.Sleep(time.Hour)
		bad := f.spawn("bo", "fails")
		time.Sleep(time.Hour)
		busy := f.spawn("bo", "sleeper")

		for query, want := range map[string][]string{
			"": {good, bad, busy}, "status=failed": {bad}, "status=active": {busy}, "status=running": {busy}, "status=succeeded": {good}, "tool=echo": {good},
			"plugin=fails": {bad}, "text=%3Cb%3Esheep": {good}, "text=FILE+IS+NOT": {bad}, "session=bo&status=failed": {bad}, "session=ana&status=failed": nil,
			"from=2000-01-01T00:30": {bad, busy}, "to=2000-01-01T00:30": {good}, "from=2000-01-01T00:30&to=2000-01-01T01:30": {bad}, "tool=none": nil,
		} {
			page := f.get("/ui/runs?" + query)
			require.Equal(t, len(want), strings.Count(page, "<tr id="), query)
			for _, id := range want {
				require.Contains(t, page, id, query)
			}
		}
		page := f.get("/ui/runs?status=failed&text=%22%3E&from=2000-01-01T00:30&tool=a&plugin=b")
		require.Contains(t, page, `name="text" value="&#34;&gt;"`)
		require.Contains(t, page, "No runs match.")
		for _, bad := range []string{"status=shrug", "from=noon", "to=noon", "text=" + strings.Repeat("x", 301), "tool=" + strings.Repeat("x", 301)} {
			require.Equal(t, http.StatusBadRequest, f.do("GET", "/ui/runs?"+bad, "").Code, bad)
		}
	})
}

// An operator stops a run of any session; its agent is notified nevertheless.
func TestStop(t *testing.T) {
	for name, test := range map[string]struct{ form, reason string }{
		"politely":       {"reason=not+needed", "not needed"},
		"at once":        {"force=true", ""},
		"with a hostile": {"reason=%3Cscript%3E%E2%80%AE%1b%5b31m", "<script>\u202e"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := open(t, "sleeper")
				id := f.spawn("ana", "sleeper")
				w := f.post("/ui/runs/"+id+"/stop", test.form)
				require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
				require.Equal(t, "/ui/runs/"+id, w.Header().Get("Location"))
				run := f.run(id)
				require.Equal(t, wire.StatusCanceled, run.Status)
				require.Equal(t, "operator", run.Stopping.By)
				require.Equal(t, test.reason, run.Stopping.Reason)
				require.Equal(t, wire.NoticePending, run.Notice)
				page := f.get("/ui/runs/" + id)
				require.Contains(t, page, "canceled")
				require.NotContains(t, page, "/stop")
				require.Equal(t, http.StatusSeeOther, f.post("/ui/runs/"+id+"/stop", "").Code, "again")
			})
		})
	}
}

// Only a form that was posted from this page changes anything.
func TestForgedForms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "sleeper", "echo")
		id := f.spawn("ana", "sleeper")
		s, err := f.service.Session("ana").Schedules().New(t.Context(), server.ScheduleRequest{SpawnRequest: server.SpawnRequest{Tool: "echo"}, Cron: "0 0 1 1 *"})
		require.NoError(t, err)
		form := []string{"Content-Type", "application/x-www-form-urlencoded"}
		ended := f.spawn("ana", "echo")
		for _, path := range []string{
			"/ui/runs/" + id + "/stop", "/ui/runs/" + ended + "/rerun", "/ui/runs/" + id + "/answers", "/ui/runs/" + id + "/messages", "/ui/stop", "/ui/remove", "/ui/runs/" + ended + "/remove",
			"/ui/schedules/" + s.ScheduleID + "/remove",
			"/ui/schedules/" + s.ScheduleID + "/disable", "/ui/schedules/" + s.ScheduleID + "/enable", "/ui/schedules/" + s.ScheduleID + "/fire",
			"/ui/tools/echo", "/ui/plugins", "/ui/approvals/" + id, "/ui/kept_approvals/echo/revoke",
			"/ui/stores/keeper/remove", "/ui/stores/keeper/values/remove", "/ui/secrets/example", "/ui/secrets/example/remove",
		} {
			for name, test := range map[string]struct {
				method  string
				body    string
				headers []string
				status  int
			}{
				"a link":                {"GET", "", nil, 404},
				"another site":          {"POST", "force=true", append(form, "Sec-Fetch-Site", "cross-site"), 403},
				"another port":          {"POST", "force=true", append(form, "Sec-Fetch-Site", "same-site"), 403},
				"an old browser":        {"POST", "force=true", append(form, "Origin", "http://evil.example"), 403},
				"a page of no origin":   {"POST", "force=true", append(form, "Origin", "null"), 403},
				"text that is no form":  {"POST", "force=true", []string{"Content-Type", "text/plain"}, 415},
				"a form that is no one": {"POST", "force=%zz", form, 400},
				"a form without end":    {"POST", "reason=" + strings.Repeat("x", maxCallForm), form, 413},
			} {
				if test.status == 404 && (path == "/ui/plugins" || path == "/ui/tools/echo") {
					continue // there is a page
				}
				require.Equal(t, test.status, f.do(test.method, path, test.body, test.headers...).Code, name)
			}
		}
		require.Nil(t, f.run(id).Stopping)
		s, err = f.service.AllSessions().Schedules().Get(t.Context(), s.ScheduleID)
		require.NoError(t, err)
		require.True(t, s.Enabled)
		runs, err := f.service.AllSessions().Runs(t.Context(), server.RunQuery{})
		require.NoError(t, err)
		require.Len(t, runs, 2, "nothing was started")
	})
}

func TestDisable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		s, err := f.service.Session("ana").Schedules().New(t.Context(), server.ScheduleRequest{SpawnRequest: server.SpawnRequest{Tool: "echo"}, Cron: "0 0 1 1 *"})
		require.NoError(t, err)
		require.Contains(t, f.get("/ui/schedules"), "/disable")
		w := f.post("/ui/schedules/"+s.ScheduleID+"/disable", "")
		require.Equal(t, http.StatusSeeOther, w.Code)
		page := f.get("/ui/schedules")
		require.NotContains(t, page, "/disable")
		require.Contains(t, page, "disabled")
		for _, id := range []string{"sc_" + strings.Repeat("a", 26), "nonsense"} {
			require.Equal(t, http.StatusNotFound, f.post("/ui/schedules/"+id+"/disable", "").Code)
		}
	})
}

// Files are raw, and browsers save them rather than show them.
func TestDownloads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "hostile", "sleeper")
		id := f.spawn("ana", "hostile")
		for path, name := range map[string]string{"output": "output.log", "artifacts/output.log": "output.log", "artifacts/result.json": "result.json"} {
			w := f.do("GET", "/ui/runs/"+id+"/"+path, "")
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
			require.Equal(t, fmt.Sprintf("attachment; filename=%s-%s", id, name), w.Header().Get("Content-Disposition"))
			require.Equal(t, filePolicy, w.Header().Get("Content-Security-Policy"))
			if name == "output.log" {
				require.Equal(t, strings.Join(hostile, "\n"), w.Body.String())
			}
		}
		running := f.spawn("ana", "sleeper")
		require.Equal(t, "working\n", f.do("GET", "/ui/runs/"+running+"/output", "").Body.String())
		for _, path := range []string{running + "/artifacts/output.log", id + "/artifacts/run.db", "bg_" + strings.Repeat("a", 26) + "/output", "x/output", "x", "bg_" + strings.Repeat("a", 26)} {
			w := f.do("GET", "/ui/runs/"+path, "")
			require.Equal(t, http.StatusNotFound, w.Code, path)
			require.Empty(t, w.Header().Get("Content-Disposition"))
			inspect(t, w.Body.String())
		}
	})
}

// The headers of every answer.
func TestHeaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		for _, path := range []string{"/", "/ui/runs", "/ui/schedules", "/ui/plugins", "/ui/nothing", asset("page.css")} {
			h := f.do("GET", path, "").Header()
			require.Equal(t, pagePolicy, h.Get("Content-Security-Policy"))
			require.Equal(t, "DENY", h.Get("X-Frame-Options"))
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "same-origin", h.Get("Referrer-Policy"))
		}
		require.Equal(t, "no-store", f.do("GET", "/", "").Header().Get("Cache-Control"))
		for name, media := range map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
			w := f.do("GET", asset(name), "")
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, media, w.Header().Get("Content-Type"))
			require.Contains(t, w.Header().Get("Cache-Control"), "immutable")
			require.Contains(t, f.get("/"), asset(name))
		}
		for _, path := range []string{"/ui/static/0/page.css", asset("../webui.go"), asset("none")} {
			require.NotEqual(t, http.StatusOK, f.do("GET", path, "").Code)
		}
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			require.Equal(t, http.StatusNotFound, f.do(method, "/ui/runs", "").Code)
		}
	})
}

// A page that is requested again is sent only if it has changed.
func TestRequestedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "chatty", "echo")
		again := func(path, tag string) (next, body string) {
			w := f.do("GET", path, "", "If-None-Match", tag)
			if w.Code == http.StatusNotModified {
				require.Empty(t, w.Body.String())
			}
			return w.Header().Get("ETag"), w.Body.String()
		}
		empty, body := again("/", "")
		require.Contains(t, body, "Nothing is running.")
		time.Sleep(10 * time.Second)
		tag, body := again("/", empty)
		require.Equal(t, empty, tag)
		require.Empty(t, body, "nothing happens")

		id := f.spawn("ana", "chatty")
		tag, body = again("/", empty)
		require.NotEqual(t, empty, tag)
		require.Contains(t, body, id)
		time.Sleep(time.Second)
		_, body = again("/", tag)
		require.Contains(t, body, "<td class=\"num\">1 s</td>", "its clock continues")

		time.Sleep(10 * time.Second)
		running, body := again("/ui/runs/"+id, "")
		require.Contains(t, body, `<span id="out-1-0">one`+"\ntwo\n")
		time.Sleep(10 * time.Second)
		ended, body := again("/ui/runs/"+id, running)
		require.Contains(t, body, `<span id="out-1-0">one`+"\ntwo\nthree\n")
		require.NotContains(t, body, "/stop")
		_, body = again("/ui/runs/"+id, ended)
		require.Empty(t, body)
	})
}

// The record of a run may be removed while its page is open.
func TestGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		path := "/ui/runs/" + f.spawnRequest("ana", server.SpawnRequest{Tool: "echo", Silent: true})
		tag := f.do("GET", path, "").Header().Get("ETag")
		time.Sleep(retention + 2*time.Minute)
		require.Equal(t, http.StatusNotFound, f.do("GET", path, "", "If-None-Match", tag).Code)
	})
}

// Pieces that are shown stay as they are while the output grows, except for the
// last one.
func TestPiecesStay(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, lines := range []string{"a line\n", strings.Repeat("long ", 200) + "\n", "ä", strings.Repeat("x", 5000) + "\n", "\n"} {
		all, shown := []byte(strings.Repeat(lines, 100_000/len(lines))), map[string]string{}
		for end := 0; end < len(all); end = min(len(all), end+1+random.IntN(3000)) {
			from := max(0, end-maxOutput) / maxPiece * maxPiece
			if from > 0 {
				from += boundary(all[from:end], 0)
			}
			pieces := split(server.Chunk{Offset: int64(from), Data: all[from:end], End: int64(end), Attempt: 1}, 0)
			var text []byte
			for i, p := range pieces {
				text = append(text, p.data...)
				require.Less(t, len(p.data), 2*maxPiece+1)
				if i < len(pieces)-1 {
					require.Contains(t, []string{"", string(p.data)}, shown[p.ID()])
					shown[p.ID()] = string(p.data)
				}
			}
			require.Equal(t, string(all[from:end]), string(text))
		}
	}
}

// A fullDisk is an engine whose disk is full until there is room: no run's end is stored.
type fullDisk struct {
	*memory.Engine
	room atomic.Bool
}

type fullWorker struct {
	engine.Worker
	disk *fullDisk
}

type fullLease struct {
	engine.Lease
	disk *fullDisk
}

func (e *fullDisk) Check(context.Context) error {
	if e.room.Load() {
		return nil
	}
	return engine.ErrFull
}

func (e *fullDisk) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return fullWorker{w, e}, err
}

func (w fullWorker) Start(ctx context.Context, id string) (engine.Lease, error) {
	l, err := w.Worker.Start(ctx, id)
	return fullLease{l, w.disk}, err
}

func (l fullLease) Complete(ctx context.Context, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	if err := l.disk.Check(ctx); err != nil {
		return engine.Run{}, err
	}
	return l.Lease.Complete(ctx, status, b, end)
}

// TestFullDisk: the overview says that the disk is full, before anything else. A run whose end
// is not stored has ended, and is not listed as active too.
func TestFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		disk := &fullDisk{Engine: memory.New()}
		f := openConfig(t, server.Config{Engine: disk}, "echo")
		defer disk.room.Store(true) // or the service does not close
		require.Regexp(t, `(?s)1 problem.*the disk is full: no run, message, value or decision can be stored`, f.get("/"))

		link := `href="/ui/runs/` + f.spawn("s", "echo") + `"`
		synctest.Wait()
		page := f.get("/")
		require.Contains(t, page, "1 run has ended, but could not be stored yet")
		require.Equal(t, 1, strings.Count(page, link), page)
		require.Contains(t, page, "Nothing is running.")

		f.spawn("s", "echo")
		synctest.Wait()
		require.Contains(t, f.get("/"), "2 runs have ended, but could not be stored yet")
	})
}
