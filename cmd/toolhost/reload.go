package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/watch"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// A reloader rereads the configuration and the plugins of a service.
type reloader struct {
	*app
	service *server.Service
	serves  bool // whether the service is available over HTTP

	mu sync.Mutex // held during a reload
}

// keepReloading reloads on each SIGHUP, which Windows never sends, and whenever a
// configuration file changes. end stops this, and waits for a reload in progress.
func (r *reloader) keepReloading() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)

	var reloading sync.WaitGroup
	reloading.Go(func() {
		for range asked {
			_, _ = r.reload(ctx) // reload announces the result
		}
	})
	reloading.Go(func() {
		watch.Poll(ctx, r.look, func() { _, _ = r.reloadChanged(ctx) })
	})
	return func() {
		cancel()
		signal.Stop(asked)
		close(asked)
		reloading.Wait()
	}
}

// look describes the state of the configuration files. It returns nothing if they are not
// watched.
func (r *reloader) look() string {
	var text strings.Builder
	if !r.now().watch {
		return ""
	}
	for _, file := range r.configFiles() {
		watch.Describe(&text, file)
	}
	return text.String()
}

// configFiles returns the possible configuration files, whether or not they exist, and the
// files that record which of them are trusted.
func (r *reloader) configFiles() (files []string) {
	if dir := userConfig(); dir != "" {
		for _, name := range configNames {
			files = append(files, filepath.Join(dir, name))
		}
	}
	if name := namedConfig(r.flags, r.environ); name != "" {
		return append(files, name)
	}

	for _, name := range configNames {
		files = append(files, name)
		if path, err := realPath(name); err == nil {
			files = append(files, trustStore(userData()).record(path))
		}
	}
	return files
}

// reload rereads the configuration and the plugins, applies what can change, and announces
// the changes. If it fails, nothing has changed. A dry run changes nothing.
func (r *reloader) reload(ctx context.Context) (wire.Reload, error) {
	out, err := r.reloadChanged(ctx)
	if err == nil && out.Empty() && !out.DryRun {
		r.announce("reloaded: nothing has changed in the plugins and the configuration")
	}
	return out, err
}

// reloadChanged is like reload, but announces nothing if nothing has changed.
func (r *reloader) reloadChanged(ctx context.Context) (wire.Reload, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := wire.Reload{Changed: []wire.SettingChange{}, Restart: []wire.SettingChange{}, Problems: []wire.FileProblem{}, DryRun: server.InDryRun(ctx)}
	next, err := r.reread()
	if err == nil {
		out.Changed, out.Restart = r.difference(next)
		err = r.checkSecrets(ctx, next, &out)
	}
	if err == nil && !out.DryRun {
		err = r.apply(ctx, next, &out)
	}

	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, host.ErrClosed) || ctx.Err() != nil: // it is shutting down
	default:
		r.announceAs(slog.LevelWarn, "reload refused, nothing has changed: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return wire.Reload{}, err
}

// checkSecrets opens the secrets of a configuration, and records a change if the same file
// now holds other keys. A dry run fails if the keys cannot decrypt the stored secrets.
func (r *reloader) checkSecrets(ctx context.Context, next *loadedConfig, out *wire.Reload) error {
	if err := r.openSecrets(next); err != nil {
		return err
	}
	before := r.now()
	if next.secretsKey == before.secretsKey && !next.vault.SameKeys(before.vault) {
		out.Changed = append(out.Changed, wire.SettingChange{Key: "secrets_key", Old: "other keys", New: "the keys now in " + next.secretsKey})
	}
	if !out.DryRun { // a reload checks the keys itself
		return nil
	}
	return r.service.CheckSecrets(ctx, next.vault)
}

// reread rereads the configuration, as at startup. It fails if a start would fail, or if a
// file that was in force is gone or no longer trusted: most grants might be gone with it.
func (r *reloader) reread() (*loadedConfig, error) {
	next, err := loadConfig(r.flags, r.environ)
	if err != nil {
		return nil, err
	}
	for _, file := range r.now().files {
		if slices.Contains(next.files, file) {
			continue
		}
		if f, ok := next.ignoredAs(file); ok {
			return nil, fmt.Errorf("%s %s", oneLine(f.path), f.why)
		}
		return nil, fmt.Errorf("%s is missing: restore it, or restart without it", oneLine(file))
	}

	next.keepLock(r.now())
	if len(next.folders()) == 0 {
		return nil, errNoFolder
	}
	if r.serves {
		configCheck{next}.checkListen()
	}
	return next, next.problems.usage()
}

// apply puts into force everything in a configuration that can change, and announces it.
func (r *reloader) apply(ctx context.Context, next *loadedConfig, out *wire.Reload) error {
	before := r.now()
	next.data = r.config.data // the store of plugins is in it
	r.inForce.Store(next)     // announcements of plugins refer to it
	c, err := r.service.Reconfigure(ctx, func(cfg *server.Config) {
		next.apply(cfg)
		cfg.Watch, cfg.Lock = next.watch, next.lock()
		if next.sameSecrets(before) {
			next.vault = before.vault // with the values that commands have printed
		}
		cfg.Secrets = next.vault
	})
	if err != nil {
		r.inForce.Store(before)
		return err
	}
	r.setLevel(next)

	r.announceIgnored(next, before)
	for _, change := range out.Changed {
		r.announce("configuration: "+change.String(), "key", change.Key, "old", change.Old, "new", change.New)
	}
	for _, change := range out.Restart {
		r.announceAs(slog.LevelWarn, "configuration, in force only after a restart: "+change.String(), "key", change.Key, "old", change.Old, "new", change.New)
	}
	if slices.ContainsFunc(out.Changed, func(s wire.SettingChange) bool { return s.Key == "approvals.tools" || s.Key == "listing" }) {
		r.warnOfUnused(r.service)
	}
	out.Added, out.Replaced, out.Removed, out.Solved = c.Added, c.Changed, c.Removed, c.Solved
	out.Problems = append(out.Problems, fileProblems(c.Problems)...)
	return nil
}

// reloaded announces what a reload has changed. As at startup, it is not a problem if a
// plugin was granted nothing, or only enough for some of its tools.
func (a *app) reloaded(c plugins.Changes) {
	var lack []*plugins.Plugin
	ungranted := 0
	found := slices.DeleteFunc(slices.Clone(c.Problems), func(p plugins.Problem) bool {
		missing, ok := errors.AsType[*plugins.GrantError](p.Err)
		if !ok {
			return false
		}
		lack = append(lack, missing.Plugin)
		if missing.Plugin.Ungranted() {
			ungranted++
			return true
		}
		return missing.Plugin.Denied() == nil
	})

	a.announceChanges(c, ungranted)
	for _, p := range c.Overridden {
		a.announce(oneLine(p.String()), "file", p.File)
	}
	a.warnOf(fileProblems(found))
	a.announceLacking(lack)
}

// announceChanges announces, on one line, which plugins have changed, how many of them were
// granted nothing, and which problems are gone.
func (a *app) announceChanges(c plugins.Changes, ungranted int) {
	var parts []string
	var attrs []any
	for _, change := range []struct {
		name, key string
		names     []string
	}{{"added", "added", c.Added}, {"changed", "changed", c.Changed}, {"removed", "removed", c.Removed}, {"solved the problem of", "solved", c.Solved}} {
		if len(change.names) > 0 {
			parts = append(parts, change.name+" "+oneLine(strings.Join(change.names, ", ")))
			attrs = append(attrs, change.key, change.names)
		}
	}
	if ungranted > 0 {
		parts = append(parts, plural(ungranted, "plugin")+" not granted")
	}
	if len(parts) > 0 {
		a.announce("reloaded: "+strings.Join(parts, "; "), attrs...)
	}
}
