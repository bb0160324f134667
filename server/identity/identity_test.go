package identity

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// A user names only its own sessions, the operator names all of them.
func TestInSession(t *testing.T) {
	ana, operator := Caller{User: "ana"}, Caller{}
	for name, keys := range map[string][2]string{ // of ana, and of the operator; empty: refused
		"x":                                   {"ana/x", "x"},
		"bo/x":                                {"", "bo/x"},
		"a b":                                 {"", ""},
		"bo/x/":                               {"", ""},
		"~" + strings.Repeat("0f", 32) + "/x": {"", "~" + strings.Repeat("0f", 32) + "/x"},
	} {
		for i, caller := range []Caller{ana, operator} {
			got, err := caller.InSession(name)
			if keys[i] == "" {
				require.ErrorIs(t, err, ErrSession, name)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, keys[i], got.Session)
		}
	}

	// Who names none gets a session that nobody else has, and can name it later.
	for _, caller := range []Caller{ana, operator, Nobody} {
		one, err := caller.InSession("")
		require.NoError(t, err)
		other, err := caller.InSession("")
		require.NoError(t, err)
		require.NotEqual(t, one.Session, other.Session)
		require.True(t, one.Unnamed)
		require.Equal(t, one.Client(), other.Client(), "their limits are shared")
		again, err := caller.InSession(one.SessionName(one.Session))
		require.NoError(t, err)
		require.Equal(t, one.Session, again.Session)
		require.False(t, again.Unnamed)
	}

	require.Equal(t, "x", ana.SessionName("ana/x"))
	require.Equal(t, "ana/x", operator.SessionName("ana/x"))
	require.Equal(t, "ana/", Caller{User: "ana", Session: "ana/x"}.Client(), "all sessions of a user are one client")
	require.Equal(t, "ana/x", Caller{Session: "ana/x"}.Client())
	require.False(t, FromContext(t.Context()).Operator(), "a context without a caller names nobody")
}

// A context, a login and a password name the operator only with the token.
func TestLogin(t *testing.T) {
	a := New(Config{Token: "s3cret"})
	defer a.Close()
	require.True(t, a.Required())
	require.False(t, New(Config{}).Required())
	require.Nil(t, a.Metadata())

	for header, test := range map[string]struct {
		browser bool
		ok      bool
	}{
		"Bearer s3cret":        {ok: true},
		"bearer  s3cret ":      {ok: true},
		"Bearer s3cre":         {},
		"s3cret":               {},
		"":                     {},
		"Basic eDpzM2NyZXQ=":   {browser: true, ok: true},
		"Basic eDpzM2NyZXQ= ":  {browser: true, ok: true},
		"Basic eDpzM2NyZXQ=\t": {},
		"Basic eA==":           {browser: true},
		"Basic !":              {browser: true},
	} {
		caller, err := a.Login(t.Context(), []string{header}, test.browser)
		if test.ok {
			require.NoError(t, err, header)
			require.True(t, caller.Operator())
			continue
		}
		var refused *Error
		require.ErrorAs(t, err, &refused, header)
		require.Equal(t, wire.CodeUnauthorized, refused.Code)
		require.Equal(t, test.browser, strings.HasPrefix(refused.Challenge, "Basic "), header)
		require.False(t, caller.Operator())
	}

	_, err := a.Login(t.Context(), []string{"Bearer s3cret", "Bearer s3cret"}, false)
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.CodeInvalid, refused.Code)
}
