package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/internal/secret"
)

// A connector helps users to set the secrets that their calls lack.
type connector struct {
	secrets *secret.Store
	sends   func(t *catalog.Tool, secret string) bool // whether requests of a tool may carry a secret
	log     *slog.Logger
}

func (x connector) call(c call) secret.Call {
	tool := c.tool // or the closure would keep all of c
	return secret.Call{Session: c.Session, Tool: tool.Name, Sends: func(name string) bool { return x.sends(tool, name) }}
}

// lacks says which secrets of its user a held call of a tool lacks, and how they are set.
func (x connector) lacks(ctx context.Context, session string, tool *catalog.Tool) string {
	missing := x.secrets.Missing(ctx, secret.Call{Session: session, Tool: tool.Name, Sends: tool.Sends})
	if len(missing) == 0 {
		return ""
	}
	return tool.Name + " may fail, because " + strings.Join(missing, ", and because ")
}

// link is the stage that adds to a result how to set the secret that the call lacked.
func (x connector) link(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		r, err := next(ctx, c)
		return x.secrets.Explain(ctx, x.call(c), r), err
	}
}

// connect is the stage that asks the user of a call for missing secrets. Once they are
// set, the call starts over.
func (x connector) connect(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if c.Connect == nil || c.Key != "" || c.DryRun {
			return next(ctx, c)
		}

		asker := x.secrets.Asker(x.call(c), c.Connect)
		for {
			r, err := next(ctx, c)
			if err != nil || c.note.Run != "" {
				return r, err
			}
			again, err := asker.Ask(ctx, r)
			switch {
			case again:
				continue
			case errors.Is(err, ErrAskAgain):
				return abi.Result{Kind: abi.CanceledKind, Error: err.Error(), Usage: r.Usage}, err
			case err != nil && ctx.Err() != nil:
				return runs.Canceled(ctx, r)
			case err != nil:
				x.log.Info("a secret of a user was asked for, and not set", "secret", r.Connection.Provider, "tool", c.tool.Name, "session", c.Session, "reason", err)
			}
			return r, nil
		}
	}
}
