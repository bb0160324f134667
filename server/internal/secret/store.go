// Package secret keeps the secrets of users, and lets users set those that calls lack:
// each user has values, which are stored encrypted, with the runs. A call that lacks one
// gets a one-time link to a page where its user sets it.
package secret

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/vault"
)

// scopePrefix is the prefix of the scopes with the secrets of a user.
const scopePrefix = "secret:"

// limit bounds what is stored for one user.
var limit = engine.ValueLimit{Count: 256, Bytes: 2 << 20}

// An Audit logs actions on secrets of users.
type Audit interface {
	Secret(action, user, name string)
}

// Config configures a Store. All fields are required.
type Config struct {
	Engine     engine.Engine
	Configured func() host.Secrets        // secrets in force; users can have secrets only if this is a *vault.Vault
	DryRun     func(context.Context) bool // whether a context belongs to a dry run
	Audit      Audit
	Log        *slog.Logger
}

// A Store holds the secrets of users, and the links where they set them. Links are in
// memory only: a restart voids them. It is safe for concurrent use.
type Store struct {
	Config
	pending pending
}

// New returns a Store.
func New(cfg Config) *Store {
	return &Store{cfg, pending{links: map[string]Link{}, waits: map[chan struct{}]userSecret{}}}
}

// User returns the secrets of a user. The user "" owns the sessions without one.
func (s *Store) User(name string) User { return s.user(name, s.Configured()) }

// For returns the secrets of a user for a call, with the configured secrets that the call
// began with; nil if no secrets are configured.
func (s *Store) For(name string, configured host.Secrets) host.Secrets {
	if configured == nil {
		return nil
	}
	return s.user(name, configured)
}

func (s *Store) user(name string, configured host.Secrets) User {
	v, _ := configured.(*vault.Vault)
	return User{s, name, configured, v}
}

// Links returns the links of the store.
func (s *Store) Links() *Links { return &Links{s} }

// Renew encrypts with the first key whatever was encrypted with another key, so that the
// operator can remove the other key.
func (s *Store) Renew(ctx context.Context) error {
	if s.User("").vault == nil {
		return nil
	}
	return s.each(ctx, func(user string, one engine.Value) error { return s.User(user).renew(ctx, one) })
}

// CheckKeys returns a *[background.FieldError] if the keys of the next configuration cannot
// decrypt a stored secret that the keys in force can decrypt.
func (s *Store) CheckKeys(ctx context.Context, next host.Secrets) error {
	now, v := s.User("").vault, s.user("", next).vault
	if now == nil || v == nil || v.SameKeys(now) {
		return nil
	}

	return s.each(ctx, func(user string, one engine.Value) error {
		if !v.PerUser(one.Key) || !now.Reads(user, one.Key, one.Data) || v.Reads(user, one.Key, one.Data) {
			return nil
		}
		return &background.FieldError{Field: "secrets_key", Problem: fmt.Sprintf(
			"the stored secret %q of user %q cannot be decrypted with these keys: add the old key after the new one until the next reload, or restart to do without the secret", one.Key, user)}
	})
}

// each calls f for each stored secret, until it returns an error.
func (s *Store) each(ctx context.Context, f func(user string, one engine.Value) error) error {
	scopes, err := s.Engine.Scopes(ctx, "", scopePrefix)
	if err != nil {
		return err
	}
	for _, scope := range scopes {
		user := strings.TrimPrefix(scope.Name, scopePrefix)
		values, err := s.Engine.Values(ctx, s.User(user).scope(), "", 0, true)
		if err != nil {
			return err
		}
		for _, one := range values {
			if err := f(user, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// renew encrypts a stored secret with the first key, unless it already is.
func (u User) renew(ctx context.Context, one engine.Value) error {
	secret, old, err := u.vault.Unseal(ctx, u.name, one.Key, one.Data)
	if err != nil || !old { // an error is logged, and found again where it matters
		return nil
	}
	if one.Data, err = u.vault.Seal(u.name, one.Key, secret.Value); err != nil {
		return err
	}
	_, err = u.store.Engine.PutValue(ctx, u.scope(), engine.Value{Key: one.Key, Data: one.Data, Version: one.Version}, limit)
	if err != nil && !errors.Is(err, engine.ErrConflict) && !errors.Is(err, engine.ErrNotFound) { // else it was set or removed meanwhile
		return err
	}
	u.store.Audit.Secret("secret encrypted with a new key", u.name, one.Key)
	return nil
}
