package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/internal/secret"
)

// Secrets manages the secrets of one user: those of Config.Secrets for which each user has
// their own value. They are stored encrypted, with the runs. Its methods are List, Set,
// Remove and Secret, which implements [host.Secrets]. The error of Set matches
// [engine.ErrNotFound] if the user cannot set such a secret, is a *[background.FieldError]
// for a value that no request could carry, and matches [vault.ErrNoKeys] if the operator has
// no key for such secrets. In a dry run, Set and Remove only check. It is a small value,
// safe for concurrent use.
type Secrets = secret.User

// Secrets returns the secrets of a user, whose sessions are named USER/NAME. The user "" owns
// all other sessions.
func (s *Service) Secrets(user string) Secrets { return s.secrets.User(user) }

// SecretLinks holds the links that calls created for missing secrets. They are in memory only:
// a restart voids them. ServeAt sets the URL of the page for links, such as
// https://tools.example/secret/; without it, calls create none. Link returns the link that has
// the given token, and Use sets the link's secret and voids the link. Their errors match
// [ErrLink]. If Use fails with an error of [Secrets], the link stays valid. It is safe for
// concurrent use.
type SecretLinks = secret.Links

// SecretLinks returns the links of the service.
func (s *Service) SecretLinks() *SecretLinks { return s.secrets.Links() }

// SecretLink is a one-time address where a user sets one of their secrets. Anyone who
// knows it can set that secret, but not read it.
type SecretLink = secret.Link

// SecretNeed is a missing secret that the user of a call can set on a page.
type SecretNeed = secret.Need

// Errors about missing secrets.
var (
	// ErrLink means that a link is unknown, used or expired, or that its secret has been
	// set in another way.
	ErrLink = reason.ErrLink
	// ErrNotConnected means that the user did not set a secret that a call needs.
	ErrNotConnected = secret.ErrNotConnected
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

// lacks describes which of its user's secrets a held call to a tool lacks, and how to set
// them.
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
