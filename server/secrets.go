package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

// secretPrefix is the prefix of the scopes with the secrets of a user.
const secretPrefix = "secret:"

// secretLimit bounds what is stored for one user.
var secretLimit = engine.ValueLimit{Count: 256, Bytes: 2 << 20}

// Secrets manages the secrets of one user: those of Config.Secrets that each user has.
// They are stored encrypted, with the runs. It is a small value, safe for concurrent use.
type Secrets struct {
	service *Service
	source  host.Secrets // snapshot of Config.Secrets
	user    string
}

// Secrets returns the secrets of a user, whose sessions are USER/NAME. The user "" owns
// all other sessions.
func (s *Service) Secrets(user string) Secrets {
	return Secrets{s, s.now().cfg.Secrets, user}
}

// vault returns the vault with the sources of secrets; nil if the program has secrets of
// another kind.
func (v Secrets) vault() *vault.Vault {
	found, _ := v.source.(*vault.Vault)
	return found
}

func (v Secrets) scope() engine.Scope { return engine.Scope{Name: secretPrefix + v.user} }

// List returns the secrets that the user can set, by name. With operators it adds those
// of the operator, and queries their sources.
func (v Secrets) List(ctx context.Context, operators bool) (wire.Secrets, error) {
	out := wire.Secrets{Secrets: []wire.Secret{}}
	values, err := v.service.engine.Values(ctx, v.scope(), "", 0, false)
	if err != nil || v.vault() == nil {
		return out, err
	}
	stored := map[string]engine.Value{}
	for _, one := range values {
		stored[one.Key] = one
	}

	sources := v.vault().Sources()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		one := wire.Secret{Name: name, Scope: wire.SecretOfUser, Hosts: sources[name].Hosts}
		switch {
		case sources[name].Scope == vault.OfUser:
			at, set := stored[name]
			one.Set, one.SetAt = set, at.At
		case operators:
			_, err := v.vault().Secret(ctx, name)
			one.Scope, one.Set = wire.SecretOfOperator, err == nil
		default:
			continue
		}
		out.Secrets = append(out.Secrets, one)
	}
	return out, nil
}

// Set stores the value of a secret, and replaces the previous one. The error matches
// engine.ErrNotFound if the user cannot set such a secret, is a *background.FieldError
// for a value that no request could have, and matches vault.ErrNoKeys if the operator has
// no key for such secrets. A dry run stores nothing.
func (v Secrets) Set(ctx context.Context, name, value string) error {
	if err := v.check(name); err != nil {
		return err
	}
	if err := v.vault().CheckValue(name, value); err != nil {
		return &background.FieldError{Field: "value", Problem: err.Error()}
	}
	sealed, err := v.vault().Seal(v.user, name, value)
	if err != nil && !errors.Is(err, vault.ErrNoKeys) {
		v.service.log.Error("the keys for secrets of users cannot be read", "error", err)
	}
	if err != nil || InDryRun(ctx) {
		return err
	}

	_, err = v.service.engine.PutValue(context.WithoutCancel(ctx), v.scope(), engine.Value{Key: name, Data: sealed, Version: AnyVersion}, secretLimit)
	if err != nil {
		return err
	}
	v.service.audit.Secret("secret set", v.user, name)
	v.service.links.set(v.user, name)
	return nil
}

// Remove removes the value of a secret, even of one that is no longer configured, and
// reports whether there was one. A dry run removes nothing.
func (v Secrets) Remove(ctx context.Context, name string) (bool, error) {
	var err error
	if InDryRun(ctx) {
		_, err = v.service.engine.Value(ctx, v.scope(), name)
	} else {
		err = v.service.engine.DeleteValue(context.WithoutCancel(ctx), v.scope(), name, AnyVersion)
	}
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	if err == nil && !InDryRun(ctx) {
		v.service.audit.Secret("secret removed", v.user, name)
	}
	return err == nil, err
}

// check returns an error unless the user can set a secret.
func (v Secrets) check(name string) error {
	if v.vault() == nil {
		return engine.ErrNotFound
	}
	source, ok := v.vault().Sources()[name]
	switch {
	case !ok:
		return engine.ErrNotFound
	case source.Scope != vault.OfUser:
		return &background.FieldError{Field: "name", Problem: "it is a secret of the operator, whose value comes from the configuration"}
	}
	return nil
}

// Secret implements [host.Secrets], with the secrets of the user and of the operator.
func (v Secrets) Secret(ctx context.Context, name string) (host.Secret, error) {
	if v.vault() == nil || !v.vault().PerUser(name) {
		return v.source.Secret(ctx, name)
	}
	stored, err := v.service.engine.Value(ctx, v.scope(), name)
	if errors.Is(err, engine.ErrNotFound) {
		return host.Secret{}, host.ErrNoSecret
	}
	if err != nil {
		v.service.log.Warn("a secret of a user cannot be read", "secret", name, "user", v.user, "error", err)
		return host.Secret{}, errors.New("it cannot be read now")
	}
	secret, _, err := v.vault().Unseal(ctx, v.user, name, stored.Data)
	return secret, err
}

// secretsFor returns the secrets of a tool call; nil if no secrets are configured.
func secretsFor(s *Service, tool *catalog.Tool, call host.Call) host.Secrets {
	if configOf(tool).Secrets == nil {
		return nil
	}
	return Secrets{s, configOf(tool).Secrets, wire.UserOf(call.Session)}
}

// renewSecrets encrypts with the first key what was encrypted with another, so that the
// operator can remove the other.
func renewSecrets(ctx context.Context, s *Service) error {
	if s.Secrets("").vault() == nil {
		return nil
	}
	scopes, err := s.engine.Scopes(ctx, "", secretPrefix)
	if err != nil {
		return err
	}
	for _, scope := range scopes {
		v := s.Secrets(strings.TrimPrefix(scope.Name, secretPrefix))
		if err := v.renew(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (v Secrets) renew(ctx context.Context) error {
	values, err := v.service.engine.Values(ctx, v.scope(), "", 0, true)
	if err != nil {
		return err
	}
	for _, one := range values {
		secret, old, err := v.vault().Unseal(ctx, v.user, one.Key, one.Data)
		if err != nil || !old { // an error is logged, and found again where it matters
			continue
		}
		if one.Data, err = v.vault().Seal(v.user, one.Key, secret.Value); err != nil {
			return err
		}
		_, err = v.service.engine.PutValue(ctx, v.scope(), engine.Value{Key: one.Key, Data: one.Data, Version: one.Version}, secretLimit)
		if err != nil && !errors.Is(err, engine.ErrConflict) && !errors.Is(err, engine.ErrNotFound) { // else it was set or removed meanwhile
			return err
		}
		v.service.audit.Secret("secret encrypted with a new key", v.user, one.Key)
	}
	return nil
}
