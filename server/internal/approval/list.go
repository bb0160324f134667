package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// maxListedArgs is the maximum size of the arguments shown for a call in a list, in bytes.
const maxListedArgs = 16 << 10

// List returns up to limit waiting calls, in the order in which people were asked about them.
// It begins after the call whose id is the parameter after, even if that call has been decided
// since. If after is empty, it begins with the oldest call; a limit of 0 means no limit.
func (m *Manager) List(ctx context.Context, after string, limit int) (wire.Approvals, error) {
	out := wire.Approvals{Approvals: []wire.WaitingCall{}}
	waiting, err := m.Waiting(ctx, "")
	if err != nil {
		return out, err
	}
	slices.Reverse(waiting)
	if after != "" {
		if waiting, err = m.after(ctx, waiting, after); err != nil {
			return out, err
		}
	}

	out.Waiting = len(waiting)
	for i, r := range waiting {
		if limit > 0 && i == limit {
			out.Next = waiting[i-1].ID
			break
		}
		one, err := m.show(ctx, r, maxListedArgs)
		if err != nil {
			return out, err
		}
		out.Approvals = append(out.Approvals, one)
	}
	return out, nil
}

// after returns the waiting calls that follow a call, oldest first. If that call no
// longer waits, it returns those that were asked about later.
func (m *Manager) after(ctx context.Context, waiting []engine.Run, id string) ([]engine.Run, error) {
	if i := slices.IndexFunc(waiting, func(r engine.Run) bool { return r.ID == id }); i >= 0 {
		return waiting[i+1:], nil
	}
	decided, err := m.Engine.Get(ctx, id)
	return slices.DeleteFunc(waiting, func(r engine.Run) bool { return r.CreatedAt.Before(decided.CreatedAt) }), err
}

// Show returns a waiting call, with all its arguments.
func (m *Manager) Show(ctx context.Context, id string) (wire.WaitingCall, error) {
	run, err := m.undecided(ctx, id)
	if err != nil {
		return wire.WaitingCall{}, err
	}
	return m.show(ctx, run, catalog.MaxArgs)
}

// show describes a waiting call, with up to most bytes of its arguments.
func (m *Manager) show(ctx context.Context, r engine.Run, most int) (wire.WaitingCall, error) {
	args, err := m.args(ctx, r)
	if err != nil {
		return wire.WaitingCall{}, err
	}
	out := wire.WaitingCall{
		TaskID: r.ID, Session: r.Session, Tool: r.Tool, Plugin: r.Plugin, PluginVersion: r.PluginVersion, ToolVersion: r.Version,
		By: r.By, Caller: callerOf(r), AskedAt: r.CreatedAt, ExpiresAt: r.CreatedAt.Add(m.Policy().wait()), Grants: []string{},
	}
	out.Args, out.ArgsCut = shownArgs(args, most)
	out.ArgsBytes, out.ArgsDigest, out.ArgsIncomplete = len(args), digestOf(args), r.Secret
	if tool, err := m.Lookup(r.Tool); err == nil {
		out.Description, out.Grants, out.Fingerprint = tool.Description, append(out.Grants, grantsOf(tool)...), fingerprint(tool)
		out.Changed = errors.Join(tool.SameVersion(r), Same(tool, r)) != nil
	} else {
		out.Changed = true
	}
	return out, nil
}

// Watch returns a channel with the events of waiting calls: wire.EventHeld when a call
// begins to wait, wire.EventQueued when it was approved, and wire.EventEnded when it ends in
// any other way. The channel is closed when ctx is done.
func (m *Manager) Watch(ctx context.Context) (<-chan wire.Event, error) {
	all := m.Runs.Watch(ctx, "")
	waiting, err := m.Waiting(ctx, "")
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
		for event := range all {
			e := shape.Event(event, time.Now())
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
