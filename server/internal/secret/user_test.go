package secret

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

// Each user has a value of their own, which is stored encrypted.
func TestUsers(t *testing.T) {
	b, ctx := open(t), t.Context()
	require.Equal(t, host.ErrNoSecret.Error(), b.value("ana"))
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	require.Equal(t, "stored", b.set("bo", "example", valueOfBo))
	require.Equal(t, []string{valueOfAna, valueOfBo}, []string{b.value("ana"), b.value("bo")})
	require.Equal(t, host.ErrNoSecret.Error(), b.value(""))
	require.NotContains(t, string(b.stored("ana").Data), valueOfAna)

	list, err := b.User("ana").List(ctx, false)
	require.NoError(t, err)
	require.Equal(t, []string{"example user true", "other user false"}, shown(list))
	list, err = b.User("").List(ctx, true)
	require.NoError(t, err)
	require.Equal(t, []string{"example user false", "other user false", "shared operator false"}, shown(list))

	for _, want := range []bool{true, false} {
		removed, err := b.User("ana").Remove(ctx, "example")
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	require.Equal(t, host.ErrNoSecret.Error(), b.value("ana"))
	require.Equal(t, valueOfBo, b.value("bo"))
	require.Equal(t, actions{"secret set ana example", "secret set bo example", "secret removed ana example"}, b.actions)
	require.Empty(t, b.log.String())
}

func shown(list wire.Secrets) (out []string) {
	for _, s := range list.Secrets {
		out = append(out, fmt.Sprint(s.Name, " ", s.Scope, " ", s.Set))
	}
	return out
}

// The secrets of the operator are the same for each user.
func TestOperatorSecrets(t *testing.T) {
	t.Setenv("TOOLHOST_TEST_SHARED", valueOfBo)
	b := open(t)
	for _, user := range []string{"", "ana"} {
		secret, err := b.User(user).Secret(t.Context(), "shared")
		require.NoError(t, err)
		require.Equal(t, valueOfBo, secret.Value)
	}
}

// fixed are secrets of another kind than a vault's.
type fixed struct{}

func (fixed) Secret(context.Context, string) (host.Secret, error) {
	return host.Secret{Value: valueOfBo}, nil
}

// A program with secrets of another kind has none of users.
func TestOtherSecrets(t *testing.T) {
	b := open(t)
	b.Configured = func() host.Secrets { return fixed{} }
	require.NoError(t, b.Renew(t.Context()))
	require.Equal(t, "there is nothing with that name", b.set("ana", "example", valueOfAna))
	require.Equal(t, valueOfBo, b.value("ana"))
	list, err := b.User("ana").List(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, list.Secrets)
	require.Equal(t, lacking("example"), b.Explain(t.Context(), asks("ana/work"), lacking("example")))
	require.Nil(t, b.For("ana", nil))
}

// A call keeps the secrets that were configured when it began.
func TestCallsKeepTheirSecrets(t *testing.T) {
	b := open(t)
	began := b.Configured()
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	b.Configured = func() host.Secrets { return fixed{} }

	secret, err := b.For("ana", began).Secret(t.Context(), "example")
	require.NoError(t, err)
	require.Equal(t, valueOfAna, secret.Value)
}

// A dry run makes the checks, and changes nothing.
func TestDryRun(t *testing.T) {
	b := open(t)
	ctx := context.WithValue(t.Context(), dry{}, true)
	require.NoError(t, b.User("ana").Set(ctx, "example", valueOfAna))
	require.Equal(t, host.ErrNoSecret.Error(), b.value("ana"))
	require.Equal(t, "value: the value is empty", said(b.User("ana").Set(ctx, "example", "")))

	removed, err := b.User("ana").Remove(ctx, "example")
	require.NoError(t, err)
	require.False(t, removed)
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	removed, err = b.User("ana").Remove(ctx, "example")
	require.NoError(t, err)
	require.True(t, removed)
	require.Equal(t, valueOfAna, b.value("ana"))
	require.Equal(t, actions{"secret set ana example"}, b.actions)
}

// A new first key encrypts what the old one did, and then the old one can go.
func TestRenew(t *testing.T) {
	b := open(t)
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	first, old, next := string(b.stored("ana").Data), b.read(), vault.NewKey()+"\n"

	b.write(next + old)
	require.Equal(t, valueOfAna, b.value("ana"), "both decrypt")
	require.Equal(t, first, string(b.stored("ana").Data))
	require.NoError(t, b.Renew(t.Context()))
	second := string(b.stored("ana").Data)
	require.NotEqual(t, first, second)

	b.write(next)
	require.Equal(t, valueOfAna, b.value("ana"))
	require.NoError(t, b.Renew(t.Context()))
	require.Equal(t, second, string(b.stored("ana").Data), "it has the first key")
	require.Equal(t, actions{"secret set ana example", "secret encrypted with a new key ana example"}, b.actions)
}

// A reload to a file of keys that cannot decrypt what is stored is refused.
func TestCheckKeys(t *testing.T) {
	b := open(t)
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	sources := map[string]vault.Source{"example": {Scope: vault.OfUser, Hosts: []string{"api.example.com"}, Place: host.Place{Bearer: true}}}
	other := filepath.Join(t.TempDir(), "keys")
	check := func(keys string) error {
		require.NoError(t, os.WriteFile(other, []byte(keys), 0o600))
		next, err := vault.New(sources, vault.Keys(other), nil)
		require.NoError(t, err)
		return b.CheckKeys(t.Context(), next)
	}

	next := vault.NewKey() + "\n"
	require.EqualError(t, check(next), `secrets_key: the stored secret "example" of user "ana" cannot be decrypted with these keys: add the old key after the new one until the next reload, or restart to do without the secret`)
	require.NoError(t, check(next+b.read()))
	require.NoError(t, check(b.read()))
	require.NoError(t, b.CheckKeys(t.Context(), fixed{}))

	delete(sources, "example")
	require.NoError(t, check(next), "the secret is not configured any more")
}

// A secret whose key is lost counts as not set.
func TestLostKey(t *testing.T) {
	b := open(t)
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	b.write(vault.NewKey() + "\n")

	list, err := b.User("ana").List(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []string{"example user false", "other user false"}, shown(list))
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna), "it can be set again")
	require.Equal(t, valueOfAna, b.value("ana"))
}

// What is tried with secrets of users, and what is answered.
func TestHostileSecrets(t *testing.T) {
	const failed = "it cannot be used now: the operator finds the reason in the log"
	change := func(how func(data []byte) []byte) func(b *bench) string {
		return func(b *bench) string {
			v := b.stored("ana")
			v.Data = how(v.Data)
			b.put("ana", v)
			return b.value("ana")
		}
	}
	setting := func(name, value string) func(b *bench) string {
		return func(b *bench) string { return b.set("ana", name, value) }
	}
	for name, test := range map[string]struct {
		do   func(b *bench) (said string)
		said string
	}{
		"the secret of another user":       {func(b *bench) string { return b.value("bo") }, host.ErrNoSecret.Error()},
		"a record of another user, copied": {func(b *bench) string { b.put("bo", b.stored("ana")); return b.value("bo") }, failed},
		"a record that was changed":        {change(func(data []byte) []byte { data[len(data)-1] ^= 1; return data }), failed},
		"a record of another version":      {change(func(data []byte) []byte { data[0] = 9; return data }), failed},
		"a record that was cut":            {change(func(data []byte) []byte { return data[:5] }), failed},
		"another key":                      {func(b *bench) string { b.write(vault.NewKey() + "\n"); return b.value("ana") }, failed},
		"a header in the value":            {setting("example", "abcdef\r\nX-Admin: 1"), "value: the value has a line break or another control character"},
		"a value of a byte":                {setting("example", "x"), "value: the value is shorter than 6 bytes: it could not be masked"},
		"no value":                         {setting("example", ""), "value: the value is empty"},
		"a value without end":              {setting("example", strings.Repeat("x", 1<<20)), "value: the value has 1048576 bytes, and at most 16384 are allowed"},
		"a secret of the operator":         {setting("shared", valueOfAna), "name: it is a secret of the operator, whose value comes from the configuration"},
		"a name that is not configured":    {setting("missing", valueOfAna), "there is nothing with that name"},
		"a name of a key-value store":      {setting("../kv:asks", valueOfAna), "there is nothing with that name"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
			require.Equal(t, test.said, test.do(b))
			require.NotContains(t, b.log.String(), valueOfAna)
		})
	}
}
