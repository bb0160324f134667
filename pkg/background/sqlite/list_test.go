package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A run that ends while runs are listed is listed once, and no other is missing.
func TestListWhileRunsEnd(t *testing.T) {
	e := opened(t, t.TempDir())
	const runs = 40
	var ids []string
	for i := range runs {
		run := benchRun()
		run.ID, run.Session = fmt.Sprintf("bg_%02d", i), "s"
		require.NoError(t, e.Submit(t.Context(), run))
		ids = append(ids, run.ID)
	}

	listed := func(q engine.Query) []string {
		found, err := e.List(t.Context(), q)
		require.NoError(t, err)
		var names []string
		for _, run := range found {
			names = append(names, run.ID)
		}
		return names
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	var lists sync.WaitGroup
	stop := make(chan struct{})
	for _, q := range []engine.Query{
		{}, {Session: "s"}, {Session: "s", Limit: 7}, {Before: ids[20]}, {Session: "s", Before: ids[20], Limit: 7},
		{Filter: engine.Filter{Tool: "primes"}}, {Session: "s", Limit: 7, Filter: engine.Filter{Text: "PRIMES"}},
	} {
		want := newest
		if q.Before != "" {
			want = newest[runs-20:]
		}
		if q.Limit > 0 {
			want = want[:q.Limit]
		}
		lists.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					found, err := e.List(t.Context(), q)
					if err != nil || len(found) != len(want) || !slices.EqualFunc(found, want, func(r engine.Run, id string) bool { return r.ID == id }) {
						t.Errorf("%+v: %v, error %v", q, found, err)
						return
					}
				}
			}
		})
	}
	for i := range ids {
		completed(t, claimed(t, e, ids[i*7%runs]))
	}
	close(stop)
	lists.Wait()
	require.Equal(t, newest, listed(engine.Query{}))
	require.Empty(t, listed(engine.Query{Active: true}))
	require.Empty(t, e.active.all)
	require.Empty(t, e.active.sessions)
}

// More runs are active than a list looks at before it lets others have the lock.
func TestListOfManyActiveRuns(t *testing.T) {
	e := opened(t, t.TempDir())
	const runs = 2*listedAtOnce + 7
	var all []string
	for i := range runs {
		all = append(all, fmt.Sprintf("bg_%04d", i))
	}
	var next atomic.Int64
	spread(64, runs, func() error {
		return e.Submit(t.Context(), engine.Run{ID: all[next.Add(1)-1], Session: "s", CreatedAt: time.Now()})
	})

	pages := func(q engine.Query) (ids []string) {
		q.Limit = 333
		for {
			found, err := e.List(t.Context(), q)
			require.NoError(t, err)
			for _, run := range found {
				ids = append(ids, run.ID)
			}
			if len(found) < q.Limit {
				return ids
			}
			q.Before = found[len(found)-1].ID
		}
	}
	for _, q := range []engine.Query{{}, {Session: "s"}, {Active: true}, {Active: true, Session: "s"}} {
		require.ElementsMatch(t, all, pages(q), "%+v", q)
		found, err := e.List(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, found, runs, "%+v", q)
	}
	found, err := e.List(t.Context(), engine.Query{Filter: engine.Filter{Tool: "none"}})
	require.NoError(t, err)
	require.Empty(t, found)
	require.Empty(t, pages(engine.Query{Session: "another"}))
}

// The ended runs that the database finds are those that the filter matches.
func TestSearchIsTheFilter(t *testing.T) {
	e := opened(t, t.TempDir())
	at := time.Unix(1_700_000_000, 5)
	texts := []string{"", "Primes", "ÄÖ İ", "nul\x00Byte", "bad\ufffdbyte", "100%_'\"", "ſ K"}
	var runs []engine.Run
	for i, title := range texts {
		for k, status := range []engine.Status{engine.StatusSucceeded, engine.StatusFailed, engine.StatusCanceled} {
			run := engine.Run{ID: fmt.Sprintf("bg_%d_%d", i, k), Session: fmt.Sprint("s", k), Tool: fmt.Sprint("t", i%3), Provider: engine.Provider{Kind: fmt.Sprint("k", k), Plugin: fmt.Sprint("p", i%2)},
				Title: title, CreatedAt: at.Add(time.Duration(i) * time.Nanosecond), Args: json.RawMessage(`{}`)}
			end := engine.End{FinishedAt: at.Add(time.Hour)}
			if status == engine.StatusFailed {
				end.Error = &engine.RunError{Kind: engine.KindTimeout, Message: texts[(i+1)%len(texts)]}
			}
			require.NoError(t, e.Submit(t.Context(), run))
			if k == 2 { // never started
				_, err := e.Cancel(t.Context(), run.ID, engine.Cancellation{At: at})
				require.NoError(t, err)
			} else {
				_, err := claimed(t, e, run.ID).Complete(t.Context(), status, engine.Beat{}, end)
				require.NoError(t, err)
			}
			runs = append(runs, get(t, e, run.ID))
		}
	}

	started := runs[6].StartedAt
	filters := []engine.Filter{
		{Statuses: []engine.Status{engine.StatusSucceeded}}, {Statuses: []engine.Status{engine.StatusCanceled, engine.StatusRunning}}, {Statuses: []engine.Status{engine.StatusQueued}},
		{Errors: []engine.ErrorKind{engine.KindTimeout}}, {Tool: "t1"}, {Kind: "k1"}, {Plugin: "p1"},
		{Since: at.Add(3)}, {Until: at.Add(3)}, {Since: at.Add(2), Until: at.Add(3)},
		{StartedSince: started}, {StartedUntil: started}, {StartedUntil: at.Add(1 << 60)},
	}
	for _, text := range []string{"primes", "äö", "i̇", "\x00b", "\xff", "\ufffd", "badbyte", "%_'", "ſ", "k", "t1\n"} {
		filters = append(filters, engine.Filter{Text: text})
	}
	for i, f := range filters {
		for _, g := range filters[i:] {
			both := f
			both.Text, both.Tool, both.Errors = f.Text+g.Text, f.Tool+g.Tool, append(slices.Clone(f.Errors), g.Errors...)
			if both.Since.IsZero() {
				both.Since = g.Since
			}
			for _, session := range []string{"", "s1"} {
				var want []string
				for _, run := range slices.Backward(runs) {
					if both.Matches(run) && (session == "" || run.Session == session) {
						want = append(want, run.ID)
					}
				}
				found, err := e.List(t.Context(), engine.Query{Session: session, Filter: both})
				require.NoError(t, err)
				var ids []string
				for _, run := range found {
					ids = append(ids, run.ID)
				}
				require.Equal(t, want, ids, "%+v", both)
			}
		}
	}
}
