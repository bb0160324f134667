package server

import (
	"context"
	"errors"
	"slices"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// List returns up to limit waiting calls, oldest first, that were asked about after the
// call after, which may have been decided meanwhile. Without an id it begins with the
// oldest; a limit of 0 means no limit.
func (p Approvals) List(ctx context.Context, after string, limit int) (wire.Approvals, error) {
	out := wire.Approvals{Approvals: []wire.WaitingCall{}}
	waiting, err := p.waiting(ctx, "")
	if err != nil {
		return out, err
	}
	slices.Reverse(waiting)
	if after != "" {
		if waiting, err = p.after(ctx, waiting, after); err != nil {
			return out, err
		}
	}

	out.Waiting = len(waiting)
	for i, r := range waiting {
		if limit > 0 && i == limit {
			out.Next = waiting[i-1].ID
			break
		}
		one, err := p.show(ctx, r, maxShownArgs)
		if err != nil {
			return out, err
		}
		out.Approvals = append(out.Approvals, one)
	}
	return out, nil
}

// after returns the waiting calls that follow a call, oldest first. If that call no
// longer waits, it returns those that were asked about later.
func (p Approvals) after(ctx context.Context, waiting []engine.Run, id string) ([]engine.Run, error) {
	if i := slices.IndexFunc(waiting, func(r engine.Run) bool { return r.ID == id }); i >= 0 {
		return waiting[i+1:], nil
	}
	decided, err := p.service.engine.Get(ctx, id)
	return slices.DeleteFunc(waiting, func(r engine.Run) bool { return r.CreatedAt.Before(decided.CreatedAt) }), err
}

// Get returns a waiting call, with all its arguments.
func (p Approvals) Get(ctx context.Context, id string) (wire.WaitingCall, error) {
	run, err := p.undecided(ctx, id)
	if err != nil {
		return wire.WaitingCall{}, err
	}
	return p.show(ctx, run, MaxArgs)
}

// Watch returns a channel of events of waiting calls. With wire.EventHeld a call begins
// to wait; with wire.EventQueued it was approved; with wire.EventEnded it was refused,
// withdrawn, or not decided in time. The channel is closed when ctx is done. A watcher
// that is too slow gets wire.EventMissed.
func (p Approvals) Watch(ctx context.Context) (<-chan wire.Event, error) {
	all := p.service.AllSessions().Watch(ctx)
	waiting, err := p.waiting(ctx, "")
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, r := range waiting {
		known[r.ID] = true
	}

	to := make(chan wire.Event)
	go func() {
		defer close(to)
		for e := range all {
			switch {
			case e.Kind == wire.EventMissed:
			case e.Run == nil:
				continue
			case e.Kind == wire.EventHeld:
				known[e.Run.TaskID] = true
			case known[e.Run.TaskID] && (e.Kind == wire.EventQueued || e.Kind == wire.EventEnded):
				delete(known, e.Run.TaskID)
			default:
				continue
			}
			select {
			case to <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to, nil
}

// show describes a waiting call, with up to most bytes of its arguments.
func (p Approvals) show(ctx context.Context, r engine.Run, most int) (wire.WaitingCall, error) {
	args, err := p.service.engine.Payload(ctx, r.ID, engine.PartArgs)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return wire.WaitingCall{}, err
	}
	a := wire.WaitingCall{
		TaskID: r.ID, Session: r.Session, Tool: r.Tool, Plugin: r.Plugin, PluginVersion: r.PluginVersion, ToolVersion: r.Version,
		By: r.By, Caller: callerOf(r), AskedAt: r.CreatedAt, ExpiresAt: r.CreatedAt.Add(p.approvalWait()), Grants: []string{},
	}
	a.Args, a.ArgsCut = shownArgs(args, most)
	a.ArgsBytes, a.ArgsDigest, a.ArgsIncomplete = len(args), digestOf(args), r.Secret
	if tool, err := p.service.catalog.Lookup(r.Tool); err == nil {
		a.Description, a.Grants, a.Fingerprint = tool.Description, append(a.Grants, grantsOf(tool)...), fingerprint(tool)
		a.Changed = errors.Join(sameVersion(tool, r), sameApproval(tool, r)) != nil
	} else {
		a.Changed = true
	}
	return a, nil
}
