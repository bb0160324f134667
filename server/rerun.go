package server

import (
	"context"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/wire"
)

// Rerun starts a run with the tool, arguments, title, deadline and locale of an earlier
// run, in the session of that run, after the checks of [Session.Spawn]. A run with secret
// arguments is refused, because they were not stored. The new run keeps by as the
// requester; empty means the session's agent.
func (v Session) Rerun(ctx context.Context, id, by string) (wire.Run, error) {
	old, err := v.record(ctx, id)
	if err == nil {
		err = v.load(ctx, &old, engine.PartArgs)
	}
	switch {
	case err != nil:
		return wire.Run{}, err
	case old.Secret:
		return wire.Run{}, reason.Refuse("%s cannot be repeated: its arguments contain a secret, and secrets are not stored. Call %s with new arguments", id, old.Tool)
	}

	return v.service.Session(old.Session).Spawn(ctx, SpawnRequest{
		Tool: old.Tool, Args: old.Args, Title: old.Title, Silent: !old.SignalOnCompletion, Wake: wire.Wake(old.Wake), Timeout: old.Timeout, By: by, Locale: runs.LocaleOf(old),
	})
}
