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
	"github.com/toolhost/toolhost/server/wire"
)

// Direct calls are listed with their outcomes, and counted by tool.
func TestCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo", "fails", "crash", "sleeper")
		golden(t, "empty-calls", f.get("/ui/calls"))
		for _, tool := range []string{"echo", "echo", "fails", "crash", "none<b>"} {
			_, _ = f.service.Call(t.Context(), server.Request{Session: "ana", Tool: tool, Args: []byte(`{"secret":"hunter2"}`)})
			time.Sleep(time.Second)
		}
		parked := f.submit("sleeper", http.StatusSeeOther, url.Values{})

		page := f.get("/ui/calls")
		golden(t, "calls", page)
		require.NotContains(t, page, "hunter2")
		require.Contains(t, page, parked)
		require.Contains(t, page, "none&lt;b&gt;")
		require.Contains(t, page, `aria-label="Calls by minute, in the last hour: 2 now, at most 2 at 00:00 UTC"`)
		require.NotContains(t, page, `id="history"`, "the overview has that of all tools")
		failed := f.get("/ui/calls?failed=true&tool=crash")
		require.Contains(t, failed, `<h2 id="history-title">The last hour of <bdi>crash</bdi></h2>`)
		require.Contains(t, failed, "Latency (95 %) by minute")
		require.Equal(t, 1, strings.Count(failed, `<tr id="call-`))
		require.Contains(t, failed, "unreachable", "the page is for operators")
		require.Equal(t, http.StatusBadRequest, f.do("GET", "/ui/calls?tool="+strings.Repeat("x", 200), "").Code)
	})
}

// A call that a tool has made is listed with that tool, and its run.
func TestCallsOfTools(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo", "helper")
		_, err := f.service.Call(t.Context(), server.Request{Session: "ana", Tool: "helper"})
		require.NoError(t, err)
		require.Contains(t, f.get("/ui/calls"), `<bdi>echo</bdi></a> <span class="quiet">by <bdi>helper</bdi></span>`)

		id := f.spawn("ana", "helper")
		synctest.Wait()
		require.Contains(t, f.get("/ui/calls"), `<span class="quiet">by <a href="/ui/runs/`+id+`"><bdi>helper</bdi></a></span>`)
	})
}

// The last hour is drawn, and is in a table too.
func TestHistory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo", "fails")
		for range 3 {
			f.spawn("ana", "fails")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		page := f.get("/")
		require.Contains(t, page, "Runs ended by minute, in the last hour: 0 now, at most 3 at 00:00 UTC, 3 failed")
		require.Contains(t, page, "<tr><th scope=\"row\">00:00</th>")
	})
}

func TestChart(t *testing.T) {
	at := time.Date(2000, 1, 1, 9, 30, 0, 0, time.UTC)
	minutes := []wire.Minute{{At: at, Calls: 1}, {At: at.Add(time.Minute), Calls: 100, CallErrors: 25, CallP50Seconds: 1, CallP95Seconds: 2}, {At: at.Add(2 * time.Minute)}}
	v := newHistory("", minutes)
	require.Equal(t, minutes[2], v.Minutes[0], "the latest first")
	calls, latency := v.Charts[0], v.Charts[1]
	require.Equal(t, "Calls by minute, in the last hour: 0 now, at most 100 at 09:31 UTC, 25 failed", calls.Desc)
	require.Equal(t, "M232 48v-1h3v1zM236 48v-48h3v48z", calls.Bars, "the smallest can be seen")
	require.Equal(t, "M236 48v-12h3v12z", calls.Failed)
	require.Equal(t, "Latency (95 %) by minute, in the last hour: 0 ms now, at most 2 s at 09:31 UTC", latency.Desc)
	require.Equal(t, "M236 48v-24h3v24z", latency.Median)
	require.Empty(t, newHistory("", nil).Charts[0].Bars)
	require.Len(t, newHistory("", make([]wire.Minute, 100)).Minutes, maxBars)
	require.Len(t, newHistory("echo", minutes).Charts, 4, "those of a tool are about its calls")
}
