package secret

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

// A User manages the secrets of one user. It is a small value, safe for concurrent use.
type User struct {
	store      *Store
	name       string
	configured host.Secrets // snapshot of the configuration
	vault      *vault.Vault // the configuration as a vault; nil if it is of another kind
}

func (u User) scope() engine.Scope { return engine.Scope{Name: scopePrefix + u.name} }

// List returns the secrets that the user can set, sorted by name. If operators is set, it
// adds those of the operator, and queries their sources.
func (u User) List(ctx context.Context, operators bool) (wire.Secrets, error) {
	out := wire.Secrets{Secrets: []wire.Secret{}}
	values, err := u.store.Engine.Values(ctx, u.scope(), "", 0, true)
	if err != nil || u.vault == nil {
		return out, err
	}
	stored := map[string]engine.Value{}
	for _, one := range values {
		stored[one.Key] = one
	}

	sources := u.vault.Sources()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		one := wire.Secret{Name: name, Scope: wire.SecretOfUser, Hosts: sources[name].Hosts}
		switch {
		case sources[name].Scope == vault.OfUser:
			if at, set := stored[name]; set && u.vault.Reads(u.name, name, at.Data) {
				one.Set, one.SetAt = true, at.At
			}
		case operators:
			_, err := u.vault.Secret(ctx, name)
			one.Scope, one.Set = wire.SecretOfOperator, err == nil
		default:
			continue
		}
		out.Secrets = append(out.Secrets, one)
	}
	return out, nil
}

// Set stores the value of a secret, and replaces the previous one. The error matches
// engine.ErrNotFound if the user cannot set such a secret, is a *background.FieldError for a
// value that no request could carry, and matches vault.ErrNoKeys if the operator has no key
// for such secrets. A dry run stores nothing.
func (u User) Set(ctx context.Context, name, value string) error {
	if err := u.check(name); err != nil {
		return err
	}
	if err := u.vault.CheckValue(name, value); err != nil {
		return &background.FieldError{Field: "value", Problem: err.Error()}
	}
	sealed, err := u.vault.Seal(u.name, name, value)
	if err != nil && !errors.Is(err, vault.ErrNoKeys) {
		u.store.Log.Error("the keys for secrets of users cannot be read", "error", err)
	}
	if err != nil || u.store.DryRun(ctx) {
		return err
	}

	v := engine.Value{Key: name, Data: sealed, Version: engine.AnyVersion}
	if _, err := u.store.Engine.PutValue(context.WithoutCancel(ctx), u.scope(), v, limit); err != nil {
		return err
	}
	u.store.Audit.Secret("secret set", u.name, name)
	u.store.pending.set(u.name, name)
	return nil
}

// check returns an error unless the user can set a secret.
func (u User) check(name string) error {
	if u.vault == nil {
		return engine.ErrNotFound
	}
	source, ok := u.vault.Sources()[name]
	switch {
	case !ok:
		return engine.ErrNotFound
	case source.Scope != vault.OfUser:
		return &background.FieldError{Field: "name", Problem: "it is a secret of the operator, whose value comes from the configuration"}
	}
	return nil
}

// Remove removes the value of a secret, even of one that is no longer configured, and
// reports whether there was one. A dry run removes nothing.
func (u User) Remove(ctx context.Context, name string) (bool, error) {
	dry := u.store.DryRun(ctx)
	var err error
	if dry {
		_, err = u.store.Engine.Value(ctx, u.scope(), name)
	} else {
		err = u.store.Engine.DeleteValue(context.WithoutCancel(ctx), u.scope(), name, engine.AnyVersion)
	}
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	if err == nil && !dry {
		u.store.Audit.Secret("secret removed", u.name, name)
	}
	return err == nil, err
}

// Secret implements [host.Secrets], with the secrets of the user and of the operator.
func (u User) Secret(ctx context.Context, name string) (host.Secret, error) {
	if u.vault == nil || !u.vault.PerUser(name) {
		return u.configured.Secret(ctx, name)
	}
	stored, err := u.store.Engine.Value(ctx, u.scope(), name)
	if errors.Is(err, engine.ErrNotFound) {
		return host.Secret{}, host.ErrNoSecret
	}
	if err != nil {
		u.store.Log.Warn("a secret of a user cannot be read", "secret", name, "user", u.name, "error", err)
		return host.Secret{}, errors.New("it cannot be read now")
	}
	secret, _, err := u.vault.Unseal(ctx, u.name, name, stored.Data)
	return secret, err
}
