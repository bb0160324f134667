package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/plugins"
)

// A folder is a registry whose reloads are prepared, and where its changes are reported.
type folder struct {
	*Reloader
	next    []plugins.Changes
	err     error         // of the next reload
	saved   chan struct{} // receives a value when the folder changes
	reports []string
	logs    testlog.Buffer
	tools   Signal
}

func newFolder(t *testing.T, onReload func(plugins.Changes)) *folder {
	t.Helper()
	f := &folder{saved: make(chan struct{})}
	f.Reloader = New(Config{
		Registry: registry{f}, Audit: auditor{f}, OnReload: onReload, Tools: &f.tools, Logger: slog.New(slog.NewTextHandler(&f.logs, nil)),
		Offer: func() { f.reports = append(f.reports, "offer") },
	})
	t.Cleanup(f.Close)
	return f
}

type registry struct{ *folder }

func (r registry) Plugins() []*plugins.Plugin { return make([]*plugins.Plugin, 3) }

func (r registry) Reload(context.Context) (c plugins.Changes, err error) {
	if len(r.next) > 0 {
		c, r.next = r.next[0], r.next[1:]
	}
	return c, r.err
}

func (r registry) Watch(ctx context.Context, notify func(plugins.Changes)) {
	for {
		select {
		case <-r.saved:
			c, _ := r.Reload(ctx)
			notify(c)
		case <-ctx.Done():
			return
		}
	}
}

type auditor struct{ *folder }

func (a auditor) Reload(c plugins.Changes) { a.reports = append(a.reports, "audit") }
func (a auditor) Grants(all []*plugins.Plugin) {
	a.reports = append(a.reports, fmt.Sprintf("grants of %d", len(all)))
}

// TestReport: changes are reported in order, and models hear only of other tools.
func TestReport(t *testing.T) {
	var reported []plugins.Changes
	f := newFolder(t, func(c plugins.Changes) { reported = append(reported, c) })
	tools := f.tools.Subscribe(t.Context())
	f.next = []plugins.Changes{{}, {Changed: []string{"p"}}, {Added: []string{"q"}, ToolsAdded: []string{"q"}}}

	c, err := f.Reload(t.Context())
	require.NoError(t, err)
	require.True(t, c.Empty())
	require.Empty(t, f.reports)

	_, err = f.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"audit", "grants of 3", "offer"}, f.reports)
	require.Empty(t, tools, "models see the same as before")

	c, err = f.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"q"}, c.Added)
	require.Len(t, tools, 1)
	require.Equal(t, []plugins.Changes{{Changed: []string{"p"}}, c}, reported)

	f.err = errors.New("it is closed")
	_, err = f.Reload(t.Context())
	require.ErrorIs(t, err, f.err)
	require.Len(t, reported, 2)
}

// TestProblems: without somebody to report to, problems are in the log.
func TestProblems(t *testing.T) {
	f := newFolder(t, nil)
	f.Report(plugins.Changes{Problems: []plugins.Problem{{File: "broken.wasm", Err: errors.New("no manifest")}}})
	require.Regexp(t, `level=WARN msg="plugin not loaded" file=broken.wasm error="no manifest"`, f.logs.String())

	f = newFolder(t, func(plugins.Changes) {})
	f.Report(plugins.Changes{Problems: []plugins.Problem{{File: "broken.wasm", Err: errors.New("no manifest")}}})
	require.NotContains(t, f.logs.String(), "broken.wasm")
}

// TestReportsDoNotOverlap: reloads at once are reported one after the other.
func TestReportsDoNotOverlap(t *testing.T) {
	var inside, most atomic.Int32
	f := newFolder(t, func(plugins.Changes) {
		most.Store(max(most.Load(), inside.Add(1)))
		runtime.Gosched()
		inside.Add(-1)
	})
	var busy sync.WaitGroup
	for range 100 {
		busy.Go(func() { f.Report(plugins.Changes{Changed: []string{"p"}}) })
	}
	busy.Wait()
	require.EqualValues(t, 1, most.Load())
	require.Len(t, f.reports, 300)
}

// TestWatch: a change of the folder is reported while it is watched, which Close ends for good.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := make(chan plugins.Changes, 9)
		f := newFolder(t, func(c plugins.Changes) { reported <- c })
		save := func() bool {
			synctest.Wait()
			f.next = []plugins.Changes{{Changed: []string{"p"}}}
			select {
			case f.saved <- struct{}{}:
				<-reported
				return true
			default: // nobody watches
				return false
			}
		}

		require.False(t, save())
		f.Watch(false)
		f.Watch(true)
		f.Watch(true)
		require.True(t, save())
		f.Watch(false)
		require.False(t, save())
		f.Watch(true)
		require.True(t, save())
		f.Close()
		require.False(t, save())
		f.Watch(true)
		require.False(t, save())
		f.Close()
	})
}
