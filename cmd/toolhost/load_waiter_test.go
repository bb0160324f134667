package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// waiters measures what clients cost that only wait: half of them ask for the
// end of a run, half follow the output of one. Beside it is the server with
// nothing to do, and with the runs but without waiters.
func (l *load) waiters() {
	const perSession = 5
	sessions := min(12, max(1, l.clients/8)) // of the 64 places of a host
	var runs []*loadRun
	var of []*loadClient
	l.window("idle", 0)
	ctx := l.t.Context()
	for n := range sessions {
		c := newLoadClient(l.server.base, n, l.seed)
		defer c.http.CloseIdleConnections()
		for range perSession {
			r, err := c.start(ctx, loadSleep)
			require.NoError(l.t, err)
			runs, of = append(runs, r), append(of, c)
		}
	}
	l.window(fmt.Sprintf("%d runs that sleep", len(runs)), 0)
	waiting, leave := context.WithCancel(ctx)
	var all sync.WaitGroup
	for n := range l.clients {
		c := &loadClient{base: l.server.base, session: of[n%len(of)].session, figures: newLatencies(), http: &http.Client{Transport: &http.Transport{}}}
		r := runs[n%len(runs)]
		all.Go(func() {
			defer c.http.CloseIdleConnections()
			if n%2 == 0 {
				_, _ = c.send(waiting, "GET", "/v1/runs/"+r.id+"?wait=9m", nil)
				return
			}
			resp, err := c.open(waiting, "GET", "/v1/runs/"+r.id+"/output", nil, "Accept", "text/event-stream")
			if err != nil {
				return
			}
			defer resp.Body.Close()
			_ = readEvents(resp, func(loadEvent) (bool, error) { return true, nil })
		})
	}
	l.until("all wait", func(s httpapi.Stats) bool { return s.OpenAnswers == l.clients })
	l.window(fmt.Sprintf("%d who wait", l.clients), l.clients)
	leave()
	all.Wait()
	l.until("all have left", func(s httpapi.Stats) bool { return s.OpenAnswers == 0 })
	for i, r := range runs {
		require.NoError(l.t, of[i].stop(ctx, r, false))
		require.NoError(l.t, of[i].verify(ctx, r))
	}
}

// window measures what the server takes for a while, with so many clients that
// wait.
func (l *load) window(what string, waiters int) {
	if !l.whole || !hasProc {
		return
	}
	time.Sleep(time.Second) // for what has just begun
	began, cpu := time.Now(), l.server.cpu()
	time.Sleep(l.pause)
	share := 100 * (l.server.cpu() - cpu).Seconds() / time.Since(began).Seconds()
	now, _ := l.server.resident()
	kept, stacks := l.server.heap()
	l.figures.add("processor, "+what, share, "% of a core")
	l.figures.add("resident, "+what, float64(now)/(1<<20), "MiB")
	if waiters == 0 {
		l.before = memory{kept, stacks, l.server.goroutines()}
		return
	}
	each := func(name string, after, before int64, unit float64, of string) {
		l.figures.add(name+" per client that waits", float64(after-before)/unit/float64(waiters), of)
	}
	each("heap", kept, l.before.heap, 1<<10, "KiB")
	each("stacks", stacks, l.before.stacks, 1<<10, "KiB")
	each("goroutines", int64(l.server.goroutines()), int64(l.before.goroutines), 1, "")
	require.Less(l.t, share, 50.0, "waiters cost the server that much of a core")
	require.Less(l.t, kept-l.before.heap, int64(waiters)<<20, "bytes of heap for %d waiters", waiters)
}

// memory is what a server has at a time.
type memory struct {
	heap, stacks int64
	goroutines   int
}

// until asks the server until it is as it should be.
func (l *load) until(what string, is func(httpapi.Stats) bool) httpapi.Stats {
	l.t.Helper()
	var stats httpapi.Stats
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) { // only a broken server gets there
		a, err := l.asker.send(l.t.Context(), "GET", "/v1/stats", nil)
		require.NoError(l.t, err)
		stats = httpapi.Stats{}
		require.NoError(l.t, json.Unmarshal(a.body, &stats))
		if is(stats) {
			return stats
		}
		require.Less(l.t, time.Now(), deadline, "%s: %s", what, a.body)
	}
}
