package secret

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/vault"
)

const (
	valueOfAna = "correct-horse-battery"
	valueOfBo  = "staple-of-bo-only"

	page = "https://tools.example/secret/"
)

// dry marks the context of a dry run.
type dry struct{}

// bench is a Store with secrets of users and one of the operator, and all that it uses.
type bench struct {
	*Store
	t       *testing.T
	keys    string // the file
	sources map[string]vault.Source
	vault   *vault.Vault
	log     bytes.Buffer
	actions actions
}

// actions are the audited actions.
type actions []string

func (a *actions) Secret(action, user, name string) { *a = append(*a, action+" "+user+" "+name) }

func open(t *testing.T, more ...string) *bench {
	t.Helper()
	b := &bench{t: t, keys: filepath.Join(t.TempDir(), "keys")}
	hosts, place := []string{"api.example.com"}, host.Place{Bearer: true}
	b.sources = map[string]vault.Source{"shared": {Env: "TOOLHOST_TEST_SHARED", Hosts: hosts, Place: place}}
	for _, name := range append(more, "example", "other") {
		b.sources[name] = vault.Source{Scope: vault.OfUser, Hosts: hosts, Place: place}
	}
	b.write(vault.NewKey() + "\n")

	b.Store = New(Config{
		Engine: memory.New(), Configured: func() host.Secrets { return b.vault },
		DryRun: func(ctx context.Context) bool { return ctx.Value(dry{}) != nil },
		Audit:  &b.actions, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	b.Links().ServeAt(page)
	return b
}

// write replaces the keys, as a reload does.
func (b *bench) write(keys string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(b.keys, []byte(keys), 0o600))
	v, err := vault.New(b.sources, vault.Keys(b.keys), nil)
	require.NoError(b.t, err)
	b.vault = v
}

func (b *bench) read() string {
	b.t.Helper()
	keys, err := os.ReadFile(b.keys)
	require.NoError(b.t, err)
	return string(keys)
}

// value returns the value of a user's secret, or why there is none.
func (b *bench) value(user string) string {
	secret, err := b.User(user).Secret(b.t.Context(), "example")
	if err != nil {
		return err.Error()
	}
	return secret.Value
}

// set sets a secret, and returns what the user reads.
func (b *bench) set(user, name, value string) string {
	return said(b.User(user).Set(b.t.Context(), name, value))
}

// use uses a link, and returns what the user reads.
func (b *bench) use(token, value string) string {
	return said(b.Links().Use(b.t.Context(), token, value))
}

func said(err error) string {
	r := reason.Of(err)
	switch {
	case err == nil:
		return "stored"
	case r.Field != "":
		return r.Field + ": " + r.Text
	}
	return r.Text
}

// stored returns the record of a secret.
func (b *bench) stored(user string) engine.Value {
	b.t.Helper()
	v, err := b.Engine.Value(b.t.Context(), b.User(user).scope(), "example")
	require.NoError(b.t, err)
	v.Version = engine.AnyVersion
	return v
}

// put stores the record of a secret.
func (b *bench) put(user string, v engine.Value) {
	b.t.Helper()
	_, err := b.Engine.PutValue(b.t.Context(), b.User(user).scope(), v, limit)
	require.NoError(b.t, err)
}

// lacking is the result of a call that lacked a secret.
func lacking(name string) abi.Result {
	return abi.Result{Kind: abi.ConnectionRequired, Error: "connect it first", Connection: &abi.Connection{Provider: name}}
}

// asks is a call to a tool whose requests may carry any secret.
func asks(session string) Call {
	return Call{Session: session, Tool: "asks", Sends: func(string) bool { return true }}
}
