package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// reloaded announces what a reload has changed.
func (a *app) reloaded(c plugins.Changes) {
	var parts []string
	var attrs []any
	for _, change := range []struct {
		name    string
		plugins []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(change.plugins) > 0 {
			parts = append(parts, change.name+" "+strings.Join(change.plugins, ", "))
			attrs = append(attrs, change.name, change.plugins)
		}
	}

	if len(parts) > 0 {
		a.announce("reloaded: "+strings.Join(parts, "; "), attrs...)
	}
	a.warnOf(fileProblems(c.Problems))
}

func fileProblems(found []plugins.Problem) []wire.FileProblem {
	out := make([]wire.FileProblem, len(found))
	for i, p := range found {
		out[i] = wire.FileProblem{File: p.File, Error: p.Err.Error()}
	}
	return out
}

// warnOf prints problems with plugins, a line each.
func (a *app) warnOf(found []wire.FileProblem) {
	for _, p := range found {
		a.announceAs(slog.LevelWarn, "problem: "+oneLine(p.File+": "+p.Error), "file", p.File)
	}
}

// reloadOnHangup reloads the plugins at each SIGHUP, where the system has it. The
// function it returns ends that, and waits for it.
func (a *app) reloadOnHangup(s *server.Service) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan os.Signal, 1)
	if len(hangup) > 0 { // without signals Notify would catch all
		signal.Notify(asked, hangup...)
	}

	var reloading sync.WaitGroup
	reloading.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-asked:
			}
			if c, err := s.Reload(ctx); err == nil && c.Empty() {
				a.announce("reloaded: nothing has changed")
			}
		}
	})
	return func() {
		signal.Stop(asked)
		cancel()
		reloading.Wait()
	}
}
