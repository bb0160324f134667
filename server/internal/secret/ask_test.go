package secret

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/vault"
)

// A result says where its user sets the secret, if it is one of users that the tool may send.
func TestExplain(t *testing.T) {
	never := Call{Session: "ana/work", Tool: "asks", Sends: func(string) bool { return false }}
	for name, test := range map[string]struct {
		call Call
		r    abi.Result
		page string
		want string
	}{
		"a user, without a page":       {call: asks("ana/work"), r: lacking("example"), want: `connect example first: the secret "example" has no value: set it with PUT /v1/secrets/example, or have the operator set it`},
		"no user, without a page":      {call: asks("ana"), r: lacking("example"), want: `connect example first: the secret "example" has no value: set it with toolhost secret set example`},
		"another kind of result":       {call: asks("ana/work"), r: abi.Result{Kind: abi.ToolError, Error: "broken"}, page: page, want: "broken"},
		"no connection":                {call: asks("ana/work"), r: abi.Result{Kind: abi.ConnectionRequired, Error: "connect"}, page: page, want: "connect"},
		"a secret of the operator":     {call: asks("ana/work"), r: lacking("shared"), page: page, want: "connect it first"},
		"a name without a secret":      {call: asks("ana/work"), r: lacking("missing"), page: page, want: "connect it first"},
		"a secret that it cannot send": {call: never, r: lacking("example"), page: page, want: "connect it first"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.Links().ServeAt(test.page)
			r := b.Explain(t.Context(), test.call, test.r)
			require.Equal(t, test.want, r.Error)
			require.Empty(t, b.pending.links)
			require.Equal(t, test.r.Connection, r.Connection)
		})
	}
}

// A user is not asked for a secret that cannot be read now.
func TestExplainWithoutKeys(t *testing.T) {
	b := open(t)
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	b.write(vault.NewKey() + "\n")
	require.Equal(t, lacking("example"), b.Explain(t.Context(), asks("ana/work"), lacking("example")))
}

// What a call lacks is known before it is made: the secrets of its user without a value that
// its tool may send, and four at most.
func TestMissing(t *testing.T) {
	b := open(t, "a", "b", "c")
	only := func(session string, names ...string) Call {
		return Call{Session: session, Tool: "asks", Sends: func(name string) bool { return slices.Contains(names, name) }}
	}
	require.Len(t, b.Missing(t.Context(), asks("ana/work")), maxAsked)
	require.Empty(t, b.Missing(t.Context(), only("ana/work", "shared", "missing")), "of the operator, and of nobody")

	missing := b.Missing(t.Context(), only("ana/work", "example"))
	require.Len(t, missing, 1)
	require.Equal(t, b.Explain(t.Context(), asks("ana/work"), lacking("example")).Error, "connect example first: "+missing[0], "the same link")
	require.Equal(t, "stored", b.set("ana", "example", valueOfAna))
	require.Empty(t, b.Missing(t.Context(), only("ana/work", "example")))
	require.Len(t, b.Missing(t.Context(), only("bo/work", "example")), 1)

	b.Links().ServeAt("")
	require.Equal(t, []string{`the secret "example" has no value: set it with toolhost secret set example`}, b.Missing(t.Context(), only("ana", "example")))
	b.write(vault.NewKey() + "\n")
	require.Empty(t, b.Missing(t.Context(), only("ana/work", "example")), "it cannot be read now")
	b.Configured = func() host.Secrets { return fixed{} }
	require.Empty(t, b.Missing(t.Context(), asks("ana/work")))
}

// asker returns the Asker of a call of ana's, whose user does something when asked, and then
// waits for the secret.
func (b *bench) asker(do func(Need) error) *Asker {
	return b.Asker(asks("ana/work"), func(ctx context.Context, need Need) error {
		if err := do(need); err != nil {
			return err
		}
		select {
		case <-need.Set:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// ask makes a call that lacks a secret, and asks for it.
func (b *bench) ask(ctx context.Context, a *Asker, name string) (again bool, err error) {
	return a.Ask(ctx, b.Explain(ctx, a.call, lacking(name)))
}

// A call starts over once its user has set the secret, in whatever way.
func TestAsk(t *testing.T) {
	for name, set := range map[string]func(b *bench, need Need) error{
		"on the page": func(b *bench, need Need) error {
			return b.Links().Use(b.t.Context(), need.URL[len(page):], valueOfAna)
		},
		"elsewhere": func(b *bench, need Need) error {
			return b.User("ana").Set(b.t.Context(), "example", valueOfAna)
		},
		"later": func(b *bench, need Need) error {
			go b.set("ana", "example", valueOfAna)
			return nil
		},
		"and removed at once": func(b *bench, need Need) error {
			b.set("ana", "example", valueOfAna)
			_, err := b.User("ana").Remove(b.t.Context(), "example")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t)
				a := b.asker(func(need Need) error {
					require.Equal(t, "example", need.Name)
					require.Equal(t, []string{"api.example.com"}, need.Hosts)
					return set(b, need)
				})
				again, err := b.ask(t.Context(), a, "example")
				require.NoError(t, err)
				require.True(t, again)
				require.Empty(t, b.pending.waits)

				again, err = b.ask(t.Context(), a, "example")
				require.NoError(t, err)
				require.False(t, again, "a call asks once for each secret")
			})
		})
	}
}

// A user who does not set the secret, or leaves, ends the call. Nobody waits any more.
func TestAskEnds(t *testing.T) {
	b := open(t)
	again, err := b.ask(t.Context(), b.asker(func(Need) error { return ErrNotConnected }), "example")
	require.ErrorIs(t, err, ErrNotConnected)
	require.False(t, again)

	for _, set := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		again, err = b.ask(ctx, b.asker(func(Need) error {
			if cancel(); set {
				b.set("ana", "example", valueOfAna)
			}
			return nil
		}), "example")
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, again)
	}
	require.Empty(t, b.pending.waits)
}

// A call that lacks a secret which has a value by now starts over without a question.
func TestAskForNothing(t *testing.T) {
	b := open(t)
	never := b.asker(func(Need) error { panic("asked") })
	b.set("ana", "example", valueOfAna)
	again, err := b.ask(t.Context(), never, "example")
	require.NoError(t, err)
	require.True(t, again)

	b.Links().ServeAt("")
	again, err = b.ask(t.Context(), never, "other")
	require.NoError(t, err)
	require.False(t, again, "there is no page")
	again, err = never.Ask(t.Context(), abi.Result{Kind: abi.Success})
	require.NoError(t, err)
	require.False(t, again)
}

// A user is sent to the page of this server, not to an address of the plugin's.
func TestAskOnOurPage(t *testing.T) {
	b := open(t)
	r := lacking("example")
	r.Connection.SetupURL = "https://attacker.example/"
	a := b.Asker(asks("ana/work"), func(_ context.Context, need Need) error {
		require.Contains(t, need.URL, page)
		return ErrNotConnected
	})
	_, err := a.Ask(t.Context(), r)
	require.ErrorIs(t, err, ErrNotConnected)
}

// A plugin cannot make a call ask its user again and again.
func TestAskIsBounded(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	b, asked := open(t, names...), 0
	a := b.Asker(asks("ana/work"), func(_ context.Context, need Need) error {
		asked++
		return b.User("ana").Set(t.Context(), need.Name, valueOfAna)
	})
	for i, name := range names {
		again, err := b.ask(t.Context(), a, name)
		require.NoError(t, err)
		require.Equal(t, i < maxAsked, again)
	}
	require.Equal(t, maxAsked, asked)
}
