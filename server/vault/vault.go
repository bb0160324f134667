// Package vault manages the secrets that go into HTTP requests: where each value comes
// from, and where it may go. Secrets of the operator come from the environment, a file or
// a command, and [Vault] implements [host.Secrets] for them. Secrets of users are stored
// by the caller, encrypted: see [Vault.Seal].
//
// Values are read when a request needs them, so a new value applies without a restart: a
// file is read each time, and the output of a command is kept for [CommandTTL]. Only the
// value of an environment variable stays the same until a restart.
package vault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/host"
)

// Limits of sources.
const (
	CommandTTL  = time.Minute      // how long the output of a command is kept
	CommandTime = 10 * time.Second // how long a command may run
	retryAfter  = 5 * time.Second  // how long the failure of a command is kept
	MaxValue    = 16 << 10         // maximum size of a value, in bytes
	maxValue    = MaxValue + 2     // bytes of a value with its line break
)

// Scope is the owner of a secret.
type Scope string

// The scopes. An empty Scope means OfOperator.
const (
	OfOperator Scope = "operator"
	OfUser     Scope = "user" // each user has a separate value
)

// Source says where the value of a secret comes from, and where it may go. Exactly one of
// Env, File and Command is set; none if the Scope is OfUser.
type Source struct {
	Env     string   // environment variable
	File    string   // file that only the user of this process can read or write
	Command []string // program and its arguments, without a shell

	Scope Scope    // owner of the value
	Hosts []string // hosts that may receive the value: names, addresses and "*.example.com"
	Place host.Place
	HTTP  bool // the value may also go over plain HTTP
}

// Vault holds the secrets. It is safe for concurrent use.
type Vault struct {
	log     *slog.Logger
	keys    keyring
	entries map[string]*entry
}

type entry struct {
	Source
	turn chan struct{} // held by whoever runs the command
	kept answer
}

// answer is the output of a command, until it expires.
type answer struct {
	value string
	err   error
	until time.Time
}

// placeholder is a valid value that stands for the real one in checks.
const placeholder = "placeholder"

// Check returns an error for an invalid source. It does not read the value.
func (s Source) Check() error {
	set := 0
	for _, on := range []bool{s.Env != "", s.File != "", len(s.Command) > 0, s.Scope == OfUser} {
		if on {
			set++
		}
	}
	if set != 1 {
		return errors.New("want exactly one of env, file, command and scope: user")
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		return errors.New("command: want a program")
	}
	return s.secret(placeholder).Check()
}

func (s Source) secret(value string) host.Secret {
	return host.Secret{Value: value, Hosts: s.Hosts, Place: s.Place, HTTP: s.HTTP}
}

// New returns a Vault for the given sources, each under the name of its secret. The keys
// encrypt the secrets of users, and are read only if a source has the scope OfUser. The
// logger receives the reason when a value cannot be read; nil discards it.
func New(sources map[string]Source, keys Keys, log *slog.Logger) (*Vault, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	v := &Vault{log: log, entries: map[string]*entry{}}
	for name, s := range sources {
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("secret %q: %w", name, err)
		}
		v.entries[name] = &entry{Source: s, turn: make(chan struct{}, 1)}
	}

	for name := range v.entries {
		if !v.PerUser(name) {
			continue
		}
		var err error
		if v.keys, err = keys.read(); err != nil {
			return nil, fmt.Errorf("secret %q: %w", name, err)
		}
		break
	}
	return v, nil
}

// Sources returns the sources of secrets, by name. The map must not be changed.
func (v *Vault) Sources() map[string]Source {
	all := make(map[string]Source, len(v.entries))
	for name, e := range v.entries {
		all[name] = e.Source
	}
	return all
}

// PerUser reports whether a secret has the scope OfUser.
func (v *Vault) PerUser(name string) bool {
	return v.entries[name] != nil && v.entries[name].Scope == OfUser
}

// Secret returns a secret of the operator. The error matches [host.ErrNoSecret] if there
// is no secret of that name, or if its variable, its file or the output of its command is
// empty or missing. Any other error is worded for an agent, and the reason is logged.
func (v *Vault) Secret(ctx context.Context, name string) (host.Secret, error) {
	e := v.entries[name]
	if e == nil || e.Scope == OfUser {
		return host.Secret{}, host.ErrNoSecret
	}

	value, err := e.read(ctx)
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if err == nil && value == "" {
		err = host.ErrNoSecret
	}
	secret := e.secret(value)
	if err == nil {
		err = checkValue(secret)
	}
	if err != nil {
		return host.Secret{}, v.public(ctx, name, err)
	}
	return secret, nil
}

// public returns an error for an agent. It logs errors that concern the operator.
func (v *Vault) public(ctx context.Context, name string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, host.ErrNoSecret):
		return host.ErrNoSecret
	}
	v.log.Warn("a secret cannot be used", "secret", name, "error", err)
	return errors.New("it cannot be used now: the operator finds the reason in the log")
}

// Seal encrypts the value of a user's secret for storage, bound to the user and the name.
// [Vault.CheckValue] must accept the value. The error matches [ErrNoKeys] if the vault has
// no keys.
func (v *Vault) Seal(user, name, value string) ([]byte, error) {
	return v.keys.seal(value, about(user, name))
}

// CheckValue returns an error if a user's secret cannot have this value, because no request
// could carry it.
func (v *Vault) CheckValue(name, value string) error {
	switch {
	case !v.PerUser(name):
		return host.ErrNoSecret
	case value == "":
		return errors.New("the value is empty")
	case len(value) > MaxValue:
		return fmt.Errorf("the value has %d bytes, and at most %d are allowed", len(value), MaxValue)
	}
	return checkValue(v.entries[name].secret(value))
}

// Unseal decrypts what Seal returned for the same user and name. The result old reports
// whether a key other than the first encrypted the value: if so, seal and store it again.
// The error matches [host.ErrNoSecret] if no secret of users has the name. Any other error
// is worded for an agent.
func (v *Vault) Unseal(ctx context.Context, user, name string, sealed []byte) (s host.Secret, old bool, err error) {
	if !v.PerUser(name) {
		return host.Secret{}, false, host.ErrNoSecret
	}
	value, old, err := v.keys.open(sealed, about(user, name))
	if err != nil {
		return host.Secret{}, false, v.public(ctx, name, fmt.Errorf("of user %q: %w", user, err))
	}
	return v.entries[name].secret(value), old, nil
}

// Reads reports whether Unseal can decrypt a value. It logs nothing.
func (v *Vault) Reads(user, name string, sealed []byte) bool {
	_, _, err := v.keys.open(sealed, about(user, name))
	return err == nil
}

// SameKeys reports whether two vaults have the same keys in the same order. If one of them
// has no keys, the result is true.
func (v *Vault) SameKeys(as *Vault) bool {
	return len(v.keys) == 0 || len(as.keys) == 0 || slices.EqualFunc(v.keys, as.keys, func(a, b key) bool { return a.id == b.id })
}

// checkValue refuses control characters wherever the value goes.
func checkValue(s host.Secret) error {
	if strings.ContainsFunc(s.Value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("the value has a line break or another control character")
	}
	return s.Check()
}

func (e *entry) read(ctx context.Context) (string, error) {
	switch {
	case e.Env != "":
		return os.Getenv(e.Env), nil
	case e.File != "":
		return readFile(e.File)
	}

	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-e.turn }()

	if time.Now().Before(e.kept.until) {
		return e.kept.value, e.kept.err
	}
	value, err := run(ctx, e.Command)
	if ctx.Err() != nil { // the end of the call says nothing about the command
		return "", ctx.Err()
	}
	keep := CommandTTL
	if err != nil || value == "" {
		keep = retryAfter
	}
	e.kept = answer{value, err, time.Now().Add(keep)}
	return value, err
}
