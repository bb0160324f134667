package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/lock"
)

// show prints the updates, for a person to accept.
func (l *locking) show(ctx context.Context) error {
	cfg := l.config.server.Host
	cfg.Logger = l.logger()
	h, err := host.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer h.Close(context.WithoutCancel(ctx))

	for i, u := range l.updates {
		if i > 0 {
			l.printf("\n")
		}
		l.showOne(ctx, h, u)
	}
	return nil
}

func (l *locking) showOne(ctx context.Context, h *host.Host, u lockUpdate) {
	switch {
	case u.now == nil:
		l.printf("%s %s: gone, it was %s in %s\n", u.before.Name, oneLine(u.before.Version), oneLine(u.before.Resolved), oneLine(u.before.Source))
		return
	case u.before == nil:
		l.printf("%s %s: new\n", u.now.Name, oneLine(u.now.Version))
		l.row("source", fmt.Sprintf("%s in %s", u.now.Resolved, u.now.Source))
		l.row("module", u.now.Module)
		l.row("sidecar", u.now.Sidecar)
		l.row("signer", u.now.SignedBy())
		l.row("granted", cmp.Or(strings.Join(u.now.Grants, "; "), "nothing"))
		l.showText(lock.Changes(lock.Described{}, u.plugin.Described()))
		return
	}

	l.printf("%s %s: changed\n", u.now.Name, oneLine(u.now.Version))
	for _, d := range u.before.FileDifferences(u.now) {
		l.printf("  %s\n", oneLine(d))
	}
	if less := lock.Beyond(u.before.Grants, u.now.Grants); len(less) > 0 {
		l.printf("  it is granted less: %s\n", oneLine(strings.Join(less, ", ")))
	}
	before, err := l.lock.Version(ctx, h, u.before)
	if err != nil {
		l.printf("  the text that was accepted is not known here, and this is the new one: %s\n", oneLine(err.Error()))
		l.showText(lock.Changes(lock.Described{}, u.plugin.Described()))
		return
	}
	l.showText(lock.Changes(before.Described(), u.plugin.Described()))
}

func (l *locking) row(name, value string) {
	if value != "" {
		l.printf("  %-8s %s\n", name, oneLine(value))
	}
}

func (l *locking) showText(changes []lock.Change) {
	for _, c := range changes {
		l.printf("  %s\n", c.What)
		for line := range strings.Lines(c.Lines) {
			l.printf("    %s", strings.TrimSuffix(line, "\n")+"\n")
		}
	}
}
