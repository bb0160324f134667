package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

func lockCommand(a *app) *cobra.Command {
	var check, yes bool
	cmd := &cobra.Command{
		Use:   "lock [PLUGIN]...",
		Short: "Accept the plugins as they are now, in toolhost.lock",
		Long: `Accept the plugins as they are now, or only those named, in toolhost.lock next to the
configuration. The command shows what is new since the last time, and asks.

A lock has, for each plugin, its source and digests, a digest of what models read of
each tool, the grants that were accepted, and the signer. While there is one, nothing
else is served: a plugin that has changed is refused until you accept it, its accepted
version stays in use, and a grant that was not accepted is not in force. The lock
applies at once to a server that watches its plugins. Commit it with the configuration.`,
		Example: `  toolhost lock
  toolhost lock files --yes
  toolhost lock --check`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case check && len(args) > 0:
				return &usageError{errors.New("--check takes no plugins"), "it checks all of them"}
			case check:
				return checkLock(cmd.Context(), a)
			}
			return acceptPlugins(cmd.Context(), a, args, yes)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "write nothing: print how the plugins differ from the lock, a line for each difference, and fail if they do")
	cmd.Flags().BoolVar(&yes, "yes", false, "accept without asking")
	return cmd
}

func diffCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [PLUGIN]...",
		Short: "Show how the plugins differ from toolhost.lock",
		Long: `Show how the plugins, or only those named, differ from toolhost.lock: the text that
models read, hints, needs, grants, digests and signer. Invisible characters are shown
as their code points. The old text is from the accepted version, which is kept in the
data folder.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return diffLock(cmd.Context(), a, args) },
	}
}

// lockUpdate is a difference between a plugin and the lock.
type lockUpdate struct {
	before *lock.Plugin    // nil if the plugin is new
	now    *lock.Plugin    // nil if the plugin is gone
	plugin *plugins.Plugin // nil if the plugin is gone
}

func (u lockUpdate) name() string {
	if u.now == nil {
		return u.before.Name
	}
	return u.now.Name
}

// locking is an update of a lock that is being prepared.
type locking struct {
	*app
	service *server.Service // service that accepts everything
	lock    plugins.Lock
	old     *lock.File // current lock; nil if there is none
	updates []lockUpdate
}

// openLock loads all plugins, and compares them with the lock.
func openLock(ctx context.Context, a *app, names []string) (l *locking, done func(), err error) {
	l = &locking{app: a, lock: a.config.lock()}
	if l.lock.File == "" {
		return nil, nil, errNoLock
	}
	switch l.old, err = lock.Read(l.lock.File); {
	case errors.Is(err, fs.ErrNotExist):
		l.old = nil
	case err != nil:
		return nil, nil, &usageError{err, "repair it, or remove it and accept the plugins anew"}
	}

	l.service, done, err = a.open(ctx, func(cfg *server.Config) { cfg.Lock = plugins.Lock{} })
	if err != nil {
		return nil, nil, err
	}
	if err = l.compare(names); err != nil {
		done()
		return nil, nil, err
	}
	a.warnOf(fileProblems(l.service.Problems()))
	return l, done, nil
}

// errNoLock is the error of a command that needs a lock, but has no configuration.
var errNoLock = &usageError{errors.New("no configuration: " + lock.Name + " belongs next to one"), "write a toolhost.yaml in this folder and trust it with toolhost trust, or name one with --config"}

// compare finds the plugins that differ from the lock, among those with these names or,
// without names, among all. A plugin that currently does not load keeps its entry.
func (l *locking) compare(names []string) error {
	old := cmp.Or(l.old, &lock.File{})

	var known []string
	for _, p := range l.service.Plugins() {
		now, err := p.Entry(l.lock.File)
		if err != nil {
			return fmt.Errorf("%s: %w", p.File, err)
		}
		known = append(known, now.Name)
		if before := old.Named(now.Name); before == nil || !before.Equal(&now) {
			l.updates = append(l.updates, lockUpdate{before, &now, p})
		}
	}
	for i := range old.Plugins {
		if e := &old.Plugins[i]; !slices.Contains(known, e.Name) {
			known = append(known, e.Name)
			if l.isGone(e) {
				l.updates = append(l.updates, lockUpdate{before: e})
			}
		}
	}

	for _, name := range names {
		if !slices.Contains(known, name) {
			l.warnOf(fileProblems(l.service.Problems())) // the plugin may be among them
			return &usageError{fmt.Errorf("no plugin %q in %s", name, l.config.folderNames()), "toolhost list shows the plugins"}
		}
	}
	l.updates = slices.DeleteFunc(l.updates, func(u lockUpdate) bool { return len(names) > 0 && !slices.Contains(names, u.name()) })
	slices.SortFunc(l.updates, func(a, b lockUpdate) int { return strings.Compare(a.name(), b.name()) })
	return nil
}

// isGone reports whether a plugin's file is gone.
func (l *locking) isGone(e *lock.Plugin) bool {
	for _, f := range l.config.folders() {
		if f.LockSource() != e.Source {
			continue
		}
		if lock.IsOCI(e.Source) {
			return false // not pulled here
		}
		_, err := fs.Stat(f.FS, e.File())
		return errors.Is(err, fs.ErrNotExist)
	}
	return true
}

// acceptPlugins shows how plugins have changed, and accepts the changes.
func acceptPlugins(ctx context.Context, a *app, names []string, yes bool) error {
	l, done, err := openLock(ctx, a, names)
	if err != nil {
		return err
	}
	defer done()
	if len(l.updates) == 0 && l.old != nil {
		a.printf("%s accepts them already\n", oneLine(l.lock.File))
		return l.keep(l.old)
	}

	if err := l.show(ctx); err != nil {
		return err
	}
	if !yes {
		if err := a.confirm(fmt.Sprintf("accept this in %s?", oneLine(l.lock.File))); err != nil {
			return err
		}
	}
	return l.accept()
}

// confirm asks the person at the terminal for confirmation.
func (u *ui) confirm(question string) error {
	if !u.asks() {
		return &usageError{errors.New("nothing was accepted: there is no terminal to ask on"), "--yes accepts what is shown"}
	}

	fmt.Fprintf(u.err, "toolhost: %s [y/N] ", question)
	answer, err := bufio.NewReader(u.in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.Join(errors.New("nothing was accepted"), err)
	}
	return nil
}

// accept writes a lock that contains the updates.
func (l *locking) accept() error {
	f := &lock.File{}
	if l.old != nil {
		f.Plugins = slices.Clone(l.old.Plugins)
	}
	var names []string
	for _, u := range l.updates {
		if u.now == nil {
			f.Remove(u.name())
		} else {
			f.Set(*u.now)
		}
		names = append(names, u.name())
	}

	if err := l.keep(f); err != nil {
		return err
	}
	if err := l.config.trustLock(f); err != nil {
		return err
	}
	if err := lock.Write(l.lock.File, f); err != nil {
		return err
	}
	l.printf("accepted in %s: %s\n", oneLine(l.lock.File), cmp.Or(strings.Join(names, ", "), "-"))
	return nil
}

// keep stores the plugins that a lock accepts, and removes stored plugins that no lock has
// used for a long time.
func (l *locking) keep(f *lock.File) error {
	if l.lock.Kept == "" {
		return nil
	}
	if _, err := l.config.cacheDir(); err != nil { // checks the data folder
		return err
	}
	for _, p := range l.service.Plugins() {
		now, err := p.Entry(l.lock.File)
		if e := f.Named(p.Manifest.Name); err == nil && e != nil && e.Equal(&now) {
			err = p.KeepAs(l.lock.Kept, e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.File, err)
		}
	}
	return plugins.ForgetKept(l.lock.Kept, f)
}

func diffLock(ctx context.Context, a *app, names []string) error {
	l, done, err := openLock(ctx, a, names)
	if err != nil {
		return err
	}
	defer done()
	if l.old == nil {
		return &usageError{fmt.Errorf("there is no %s", l.lock.File), "toolhost lock shows the plugins and accepts them"}
	}
	return l.show(ctx)
}

// checkLock prints how the plugins differ from the lock.
func checkLock(ctx context.Context, a *app) error {
	k := a.config.lock()
	if k.File == "" {
		return errNoLock
	}
	if _, err := os.Stat(k.File); errors.Is(err, fs.ErrNotExist) {
		return &usageError{fmt.Errorf("there is no %s", k.File), "toolhost lock writes it"}
	}
	s, done, err := a.open(ctx, func(cfg *server.Config) { cfg.Lock = k })
	if err != nil {
		return err
	}
	defer done()

	var lines []string
	for _, p := range s.Problems() {
		if ext := filepath.Ext(p.File); ext == ".wasm" || p.File == k.File || lock.IsOCI(p.File) {
			lines = append(lines, linesOf(p)...)
		}
	}
	if f, err := lock.Read(k.File); err == nil {
		for _, p := range s.Plugins() {
			now, err := p.Entry(k.File)
			if e := f.Named(p.Manifest.Name); err == nil && e != nil {
				for _, unused := range lock.Beyond(e.Grants, now.Grants) {
					lines = append(lines, fmt.Sprintf("%s: %s: accepted and not granted: %s", p.File, e.Name, unused))
				}
			}
		}
	}

	for _, line := range lines {
		a.printf("%s\n", oneLine(line))
	}
	if len(lines) > 0 {
		return &hintError{fmt.Errorf("%s from %s", plural(len(lines), "difference"), k.File), "toolhost diff shows the changes, toolhost lock accepts them"}
	}
	a.printf("%s matches the plugins\n", oneLine(k.File))
	return nil
}

// linesOf returns one line for each difference that a problem describes.
func linesOf(p plugins.Problem) (lines []string) {
	wrong, ok := errors.AsType[*plugins.LockError](p.Err)
	if !ok || len(wrong.Differences) == 0 {
		return []string{p.String()}
	}
	for _, d := range wrong.Differences {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", p.File, wrong.Plugin, d))
	}
	return lines
}
