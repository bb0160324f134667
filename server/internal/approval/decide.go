package approval

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/wire"
)

// Decide approves a held call, which starts it, or refuses it, which ends it. The parameter by
// names the person who decides, and is not checked. A call is decided once: later decisions
// are conflicts. The error matches ErrChanged if the tool's code or grants have changed since
// they were shown, and engine.ErrNotFound if there is no such run. A dry run only makes the
// checks.
func (m *Manager) Decide(ctx context.Context, id, by string, in wire.Decide) (engine.Run, error) {
	return m.decide(ctx, id, by, in, false)
}

// decide is like Decide. If connected is set, an approval that is kept holds for this
// process only.
func (m *Manager) decide(ctx context.Context, id, by string, in wire.Decide, connected bool) (engine.Run, error) {
	run, err := m.undecided(ctx, id)
	if err != nil {
		return run, err
	}
	switch {
	case !in.Approve:
		return m.refuse(ctx, run, by, in.Reason)
	case in.Keep == wire.KeepArguments && run.Secret:
		return run, &background.FieldError{Field: "keep", Problem: "the call has secret arguments, which are not stored, so that later ones cannot be compared with them"}
	}

	tool, err := m.approvable(run, in.Fingerprint)
	if err != nil || dryrun.In(ctx) {
		return run, err
	}

	released, err := m.Runs.Release(ctx, id)
	if errors.Is(err, engine.ErrConflict) {
		return run, notHeld(id)
	}
	if err != nil {
		return run, err
	}
	m.Audit.Decided(audit.Approved, recordOf(run), by, string(in.Keep))
	if in.Keep != "" {
		if err := m.keep(ctx, tool, run, in.Keep, by, connected); err != nil {
			m.Log.Warn("a call was approved, but the approval of later calls was not kept", "tool", run.Tool, "session", run.Session, "task_id", id, "error", err)
		}
	}
	return released, nil
}

// approvable returns the tool of a held run, or why the run cannot be approved now.
func (m *Manager) approvable(run engine.Run, shown string) (*catalog.Tool, error) {
	tool, err := m.Lookup(run.Tool)
	if err == nil {
		err = Unchanged(tool, run, shown)
	}
	if err != nil {
		return nil, err
	}
	if decision, why := m.Rules(tool).Policy.Rule(tool); decision == Deny {
		return nil, denied(tool, why)
	}
	return tool, nil
}

// notApproved begins the reason for refusing a held call.
const notApproved = "not approved"

// refuse ends a held call.
func (m *Manager) refuse(ctx context.Context, held engine.Run, by, why string) (engine.Run, error) {
	if dryrun.In(ctx) {
		return m.undecided(ctx, held.ID)
	}
	reason := notApproved
	if why != "" {
		reason += ": " + why
	}
	run, err := m.Runs.Refuse(ctx, held.ID, by, reason)
	switch {
	case errors.Is(err, engine.ErrConflict):
		return run, notHeld(held.ID)
	case err == nil:
		m.Audit.Decided(audit.Refused, recordOf(held), by, why)
	}
	return run, err
}
