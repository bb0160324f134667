package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// A reloader reads the configuration and the plugins of a service again.
type reloader struct {
	*app
	service *server.Service
	granted map[string]host.Grant // now
}

// reloadOnHangup reads the grants and the plugins again at each SIGHUP, which Windows
// never sends. The function it returns ends that, and waits for it.
func reloadOnHangup(a *app, s *server.Service) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)

	var reloading sync.WaitGroup
	reloading.Go(func() {
		r := reloader{a, s, a.config.server.Grants}
		for range asked {
			r.reload(ctx)
		}
	})
	return func() {
		cancel()
		signal.Stop(asked)
		close(asked)
		reloading.Wait()
	}
}

// reload reads the configuration and the plugins again, and announces what has changed.
func (r *reloader) reload(ctx context.Context) {
	now, err := r.reread()
	if err != nil {
		r.announceAs(slog.LevelWarn, "the configuration stays as it was: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		now = nil
	}

	grants := r.granted
	var regranted, restart []string
	if now != nil {
		grants = now.server.Grants
		regranted, restart = changedGrants(r.granted, grants), r.config.changedKeys(now)
	}
	if len(regranted) > 0 {
		r.announce("grants changed: "+strings.Join(regranted, ", "), "plugins", regranted)
	}
	if len(restart) > 0 {
		r.announceAs(slog.LevelWarn, "changed in the configuration, and in force only after a restart: "+strings.Join(restart, ", "), "keys", restart)
	}

	c, reloadErr := r.service.Regrant(ctx, grants)
	switch {
	case reloadErr != nil: // it is shutting down
		return
	case now != nil:
		r.inForce.Store(now)
	}
	r.granted = grants

	switch {
	case err == nil && c.Empty() && len(regranted)+len(restart) == 0:
		r.announce("reloaded: nothing has changed in the plugins and the configuration")
	case c.Empty():
		r.announce("reloaded: nothing has changed in the plugins")
	}
}

// reread reads the configuration again, as at the start. A file that was in force and
// is not trusted any more is an error: without it most grants would be gone.
func (r *reloader) reread() (*loaded, error) {
	now, err := loadConfig(r.flags, r.environ)
	if err != nil {
		return nil, err
	}
	for _, f := range now.ignored {
		if !slices.Contains(r.config.ignored, f) {
			return nil, fmt.Errorf("%s %s, and send SIGHUP again", oneLine(f.path), f.why)
		}
	}
	return now, nil
}

// changedGrants are the names of plugins that are granted something else.
func changedGrants(before, now map[string]host.Grant) (names []string) {
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(before[name], now[name]) {
			names = append(names, name)
		}
	}
	return names
}

// changedKeys are the keys, without those of grants, whose values differ in another
// configuration.
func (c *loaded) changedKeys(now *loaded) (keys []string) {
	all := maps.Clone(c.values)
	maps.Copy(all, now.values)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(key, "grants.") && !reflect.DeepEqual(c.merged.Get(path(key)), now.merged.Get(path(key))) {
			keys = append(keys, key)
		}
	}
	return keys
}

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
	var lack []*plugins.Plugin
	for _, p := range c.Problems {
		var missing *plugins.GrantError
		if errors.As(p.Err, &missing) {
			lack = append(lack, missing.Plugin)
		}
	}
	a.announceLacking(lack)
}
