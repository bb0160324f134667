package secret

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// lacks explains a call that lacked the secret, and returns the token of its link.
func (b *bench) lacks(session string) string {
	b.t.Helper()
	r := b.Explain(b.t.Context(), asks(session), lacking("example"))
	require.Equal(b.t, abi.ConnectionRequired, r.Kind)
	token, ok := strings.CutPrefix(r.Connection.SetupURL, page)
	require.True(b.t, ok, r.Connection.SetupURL)
	require.Contains(b.t, r.Error, r.Connection.SetupURL)
	return token
}

// A link sets one secret of one user once, and the same call again gets the same one.
func TestLink(t *testing.T) {
	b := open(t)
	token := b.lacks("ana/work")
	require.Equal(t, token, b.lacks("ana/work"))
	require.NotEqual(t, token, b.lacks("bo/work"))

	link, err := b.Links().Link(token)
	require.NoError(t, err)
	link.Expires = time.Time{}
	require.Equal(t, Link{User: "ana", Session: "ana/work", Tool: "asks", Name: "example", Hosts: []string{"api.example.com"}}, link)
	require.Equal(t, "value: the value is shorter than 6 bytes: it could not be masked", b.use(token, "x"), "it can be used again")
	require.Equal(t, "stored", b.use(token, valueOfAna))
	require.Equal(t, valueOfAna, b.value("ana"))
	_, err = b.Links().Link(token)
	require.ErrorIs(t, err, reason.ErrLink)
}

// A link is valid for an hour. A call in the second half of that gets another one.
func TestLinkExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		token := b.lacks("ana/work")
		time.Sleep(29 * time.Minute)
		require.Equal(t, token, b.lacks("ana/work"))
		time.Sleep(2 * time.Minute)
		next := b.lacks("ana/work")
		require.NotEqual(t, token, next)

		_, err := b.Links().Link(token)
		require.NoError(t, err)
		time.Sleep(29 * time.Minute)
		require.Equal(t, textVoid, b.use(token, valueOfBo))
		require.Equal(t, "stored", b.use(next, valueOfAna))
	})
}

// Clients without a session name share links: their next call is in another session.
func TestLinkOfUnnamedSession(t *testing.T) {
	b := open(t)
	token := b.lacks("ana/~/one")
	require.Equal(t, token, b.lacks("ana/~/two"))
	link, err := b.Links().Link(token)
	require.NoError(t, err)
	require.Equal(t, "ana/", link.Session)
}

// Of many requests with the same link, one sets the secret.
func TestLinkRace(t *testing.T) {
	b := open(t)
	token := b.lacks("ana/work")
	var all sync.WaitGroup
	said := make(chan string, 20)
	for i := range cap(said) {
		all.Go(func() { said <- b.use(token, fmt.Sprintf("value-number-%d", i)) })
	}
	all.Wait()
	close(said)

	count := map[string]int{}
	for one := range said {
		count[one]++
	}
	require.Equal(t, map[string]int{"stored": 1, textVoid: 19}, count)
}

var textVoid = reason.ErrLink.Error()

func TestHostileLinks(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(b *bench, token string) string
		said string
	}{
		"a forged link":           {func(b *bench, token string) string { return b.use(strings.Repeat("A", len(token)), valueOfBo) }, textVoid},
		"an empty link":           {func(b *bench, token string) string { return b.use("", valueOfBo) }, textVoid},
		"a link in other letters": {func(b *bench, token string) string { return b.use(strings.ToLower(token), valueOfBo) }, textVoid},
		"a replayed link":         {func(b *bench, token string) string { b.use(token, valueOfAna); return b.use(token, valueOfBo) }, textVoid},
		"a replayed link, after the secret was removed": {func(b *bench, token string) string {
			b.use(token, valueOfAna)
			_, err := b.User("ana").Remove(b.t.Context(), "example")
			require.NoError(b.t, err)
			return b.use(token, valueOfBo)
		}, textVoid},
		"a link for a secret that was set in another way": {func(b *bench, token string) string {
			b.set("ana", "example", valueOfAna)
			return b.use(token, valueOfBo)
		}, textVoid},
		"another link for a secret that was set by a link": {func(b *bench, token string) string {
			b.use(b.lacks("ana/other"), valueOfAna)
			return b.use(token, valueOfBo)
		}, textVoid},
		"a link while another secret is set": {func(b *bench, token string) string {
			b.set("ana", "other", valueOfBo)
			b.set("bo", "example", valueOfBo)
			return b.use(token, valueOfAna)
		}, "stored"},
		"the oldest of too many links": {func(b *bench, token string) string {
			for i := range maxOfUser {
				time.Sleep(time.Second)
				b.lacks(fmt.Sprint("ana/", i))
			}
			require.Len(b.t, b.pending.links, maxOfUser)
			return b.use(token, valueOfBo)
		}, textVoid},
		"a link while another user makes too many": {func(b *bench, token string) string {
			for i := range maxOfUser + 1 {
				b.lacks(fmt.Sprint("bo/", i))
			}
			return b.use(token, valueOfAna)
		}, "stored"},
		"the oldest link of too many users": {func(b *bench, token string) string {
			for i := range maxLinks {
				time.Sleep(time.Second)
				b.lacks(fmt.Sprint("user", i, "/work"))
			}
			require.Len(b.t, b.pending.links, maxLinks)
			return b.use(token, valueOfBo)
		}, textVoid},
		"a header in the value": {func(b *bench, token string) string { return b.use(token, "abcdef\r\nX-Admin: 1") }, "value: the value has a line break or another control character"},
		"a value without end":   {func(b *bench, token string) string { return b.use(token, strings.Repeat("x", 1<<20)) }, "value: the value has 1048576 bytes, and at most 16384 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t)
				require.Equal(t, test.said, test.do(b, b.lacks("ana/work")))
			})
		})
	}
}
