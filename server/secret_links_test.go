package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

const page = "https://tools.example/secret/"

// lacks calls the plugin, and returns the token of the link that it gets.
func (k *keyedWeb) lacks(session string) string {
	k.t.Helper()
	r := k.call(session, "asks", `{}`)
	require.Equal(k.t, abi.ConnectionRequired, r.Kind)
	token, ok := strings.CutPrefix(r.Connection.SetupURL, page)
	require.True(k.t, ok, r.Connection.SetupURL)
	require.Contains(k.t, r.Error, r.Connection.SetupURL)
	return token
}

func (k *keyedWeb) use(token, value string) string {
	err := k.SecretLinks().Use(k.t.Context(), token, value)
	if err == nil {
		return "stored"
	}
	return ReasonOf(err).Text
}

// A link sets one secret of one user once, and the same call again gets the same one.
func TestSecretLink(t *testing.T) {
	k := openKeyed(t)
	links := k.SecretLinks()
	links.ServeAt(page)
	token := k.lacks("ana/work")
	require.Equal(t, token, k.lacks("ana/work"))
	other := k.lacks("bo/work")
	require.NotEqual(t, token, other)

	link, err := links.Link(token)
	require.NoError(t, err)
	require.Equal(t, []string{"ana", "ana/work", "asks", "example"}, []string{link.User, link.Session, link.Tool, link.Name})
	require.Equal(t, []string{"127.0.0.1"}, link.Hosts)
	require.Equal(t, "the value is shorter than 6 bytes: it could not be masked", k.use(token, "x"), "it can be used again")
	require.Equal(t, "stored", k.use(token, valueOfAna))

	require.Equal(t, abi.Success, k.call("ana/work", "asks", `{}`).Kind)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen)
	require.Equal(t, abi.ConnectionRequired, k.call("bo/work", "asks", `{}`).Kind)
	run := k.settled("bo/work", k.spawn("bo/work", "asks", `{}`))
	require.Contains(t, run.Error.Message, page+other, "a run says it too")
	require.NoError(t, k.Close(done()))
	k.nowhere(t, valueOfAna)
}

// Of many requests with the same link, one sets the secret.
func TestSecretLinkRace(t *testing.T) {
	k := openKeyed(t)
	k.SecretLinks().ServeAt(page)
	token := k.lacks("ana/work")

	var wg sync.WaitGroup
	said := make(chan string, 20)
	for i := range cap(said) {
		wg.Go(func() { said <- k.use(token, fmt.Sprintf("value-number-%d", i)) })
	}
	wg.Wait()
	close(said)
	stored := 0
	for one := range said {
		if one == "stored" {
			stored++
		} else {
			require.Equal(t, textVoidLink, one)
		}
	}
	require.Equal(t, 1, stored)
}

const textVoidLink = "the link was used or has expired"

func TestHostileSecretLinks(t *testing.T) {
	claims := plugintest.Plugin{Manifest: plugintest.Manifest("liar"), Invoke: plugintest.Do().Say(abi.StreamError, `{"provider":"example"}`).Return(abi.InvokeConnection)}
	for _, test := range []struct {
		name   string
		do     func(k *keyedWeb, token string) string
		answer string
	}{
		{"a forged link", func(k *keyedWeb, token string) string { return k.use(strings.Repeat("A", len(token)), valueOfBo) }, textVoidLink},
		{"an empty link", func(k *keyedWeb, token string) string { return k.use("", valueOfBo) }, textVoidLink},
		{"a link in other letters", func(k *keyedWeb, token string) string { return k.use(strings.ToLower(token), valueOfBo) }, textVoidLink},
		{"a replayed link", func(k *keyedWeb, token string) string { k.use(token, valueOfAna); return k.use(token, valueOfBo) }, textVoidLink},
		{"a replayed link, after the secret was removed", func(k *keyedWeb, token string) string {
			k.use(token, valueOfAna)
			_, err := k.Secrets("ana").Remove(k.t.Context(), "example")
			require.NoError(k.t, err)
			return k.use(token, valueOfBo)
		}, textVoidLink},
		{"a link for a secret that was set in another way", func(k *keyedWeb, token string) string {
			require.NoError(k.t, k.Secrets("ana").Set(k.t.Context(), "example", valueOfAna))
			return k.use(token, valueOfBo)
		}, textVoidLink},
		{"another link for a secret that was set by a link", func(k *keyedWeb, token string) string {
			k.use(k.lacks("ana/other"), valueOfAna)
			return k.use(token, valueOfBo)
		}, textVoidLink},
		{"an expired link", func(k *keyedWeb, token string) string {
			links := k.SecretLinks()
			link := links.open[token]
			link.Expires = time.Now()
			links.open[token] = link
			return k.use(token, valueOfBo)
		}, textVoidLink},
		{"the oldest of too many links", func(k *keyedWeb, token string) string {
			for i := range maxOfUser {
				k.lacks(fmt.Sprint("ana/", i))
			}
			require.Len(k.t, k.SecretLinks().open, maxOfUser)
			return k.use(token, valueOfBo)
		}, textVoidLink},
		{"a link while another user makes too many", func(k *keyedWeb, token string) string {
			for i := range maxOfUser + 1 {
				k.lacks(fmt.Sprint("bo/", i))
			}
			return k.use(token, valueOfAna)
		}, "stored"},
		{"a header in the value", func(k *keyedWeb, token string) string { return k.use(token, "abcdef\r\nX-Admin: 1") }, "the value has a line break or another control character"},
		{"a value without end", func(k *keyedWeb, token string) string { return k.use(token, strings.Repeat("x", 1<<20)) }, "the value has 1048576 bytes, and at most 16384 are allowed"},
		{"a plugin that names a secret it was not granted", func(k *keyedWeb, token string) string {
			return k.call("ana/work", "liar", `{}`).Error
		}, "connect example first"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := openKeyed(t)
			k.files["liar.wasm"] = &fstest.MapFile{Data: claims.Wasm()}
			_, err := k.Reload(t.Context())
			require.NoError(t, err)
			k.SecretLinks().ServeAt(page)
			require.Equal(t, test.answer, test.do(k, k.lacks("ana/work")))
			require.Empty(t, k.seen, "nothing was sent")
		})
	}
}

// connects calls a tool for a user who does something when asked.
func (k *keyedWeb) connects(ctx context.Context, req Request, do func(SecretNeed) error) (r abi.Result, asked int, err error) {
	req.Session = "ana/work"
	req.Connect = func(ctx context.Context, need SecretNeed) error {
		asked++
		if err := do(need); err != nil {
			return err
		}
		select {
		case <-need.Set:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r, err = k.Call(ctx, req)
	return r, asked, err
}

// The user of a call is asked once for each secret, and the call is made again only when it
// is set.
func TestConnecting(t *testing.T) {
	set := func(k *keyedWeb) func(SecretNeed) error {
		return func(SecretNeed) error { return k.Secrets("ana").Set(k.t.Context(), "example", valueOfAna) }
	}
	never := func(*keyedWeb) func(SecretNeed) error { return func(SecretNeed) error { panic("asked") } }
	for name, test := range map[string]struct {
		req   Request
		do    func(k *keyedWeb) func(SecretNeed) error
		asked int
		kind  abi.Kind
		sent  int
	}{
		"set": {Request{Tool: "asks"}, set, 1, abi.Success, 1},
		"set over another way": {Request{Tool: "asks"}, func(k *keyedWeb) func(SecretNeed) error {
			return func(need SecretNeed) error {
				return k.SecretLinks().Use(k.t.Context(), strings.TrimPrefix(need.URL, page), valueOfAna)
			}
		}, 1, abi.Success, 1},
		"refused": {Request{Tool: "asks"}, func(*keyedWeb) func(SecretNeed) error {
			return func(SecretNeed) error { return ErrNotConnected }
		}, 1, abi.ConnectionRequired, 0},
		"asked by calling again": {Request{Tool: "asks"}, func(*keyedWeb) func(SecretNeed) error {
			return func(SecretNeed) error { return ErrAskAgain }
		}, 1, abi.CanceledKind, 0},
		"a plugin that always claims to lack it": {Request{Tool: "claims"}, set, 1, abi.ConnectionRequired, 0},
		"a call with a key":                      {Request{Tool: "asks", Key: "one"}, never, 0, abi.ConnectionRequired, 0},
		"set and removed at once": {Request{Tool: "asks"}, func(k *keyedWeb) func(SecretNeed) error {
			return func(need SecretNeed) error {
				_ = set(k)(need)
				_, err := k.Secrets("ana").Remove(k.t.Context(), "example")
				return err
			}
		}, 1, abi.ConnectionRequired, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := openKeyed(t, "claims")
			k.SecretLinks().ServeAt(page)
			r, asked, err := k.connects(t.Context(), test.req, test.do(k))
			require.Equal(t, test.kind, r.Kind, r.Error)
			require.Equal(t, test.asked, asked)
			require.Len(t, k.seen, test.sent)
			require.Equal(t, test.kind == abi.CanceledKind, errors.Is(err, ErrAskAgain))
			require.Empty(t, k.SecretLinks().waiting, "nobody waits any more")
		})
	}
}

// A caller who leaves ends the wait. Without a page nobody is asked.
func TestConnectingEnds(t *testing.T) {
	k := openKeyed(t)
	_, asked, err := k.connects(t.Context(), Request{Tool: "asks"}, func(SecretNeed) error { panic("asked") })
	require.NoError(t, err)
	require.Zero(t, asked)

	k.SecretLinks().ServeAt(page)
	ctx, cancel := context.WithCancel(t.Context())
	r, asked, err := k.connects(ctx, Request{Tool: "asks"}, func(SecretNeed) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, abi.CanceledKind, r.Kind)
	require.Equal(t, 1, asked)
	require.Empty(t, k.SecretLinks().waiting)
}

// A plugin never sees a link, though the tool that it calls lacks a secret.
func TestSecretLinkIsNotForPlugins(t *testing.T) {
	k := openKeyed(t)
	outer := plugintest.Plugin{Manifest: plugintest.Manifest("outer"), Invoke: plugintest.Do().Use("tool.call", `{"tool":"asks","args":{}}`)}
	outer.Manifest.Needs.Tools = []string{"asks"}
	k.files["outer.wasm"] = &fstest.MapFile{Data: outer.Wasm()}
	k.cfg.Grants["outer"] = plugins.Grant{Tools: []string{"asks"}}
	k.cfg.DataDir, k.cfg.AuditDir = "", ""
	k.service = openFolder(t, k.cfg, k.files)
	k.SecretLinks().ServeAt(page)

	r := k.call("ana/work", "outer", `{}`)
	require.Equal(t, abi.Success, r.Kind, r.Error)
	require.Contains(t, string(r.Value), `"kind":"connection_required"`)
	require.NotContains(t, string(r.Value), page)
	require.Empty(t, k.SecretLinks().open)
	require.Equal(t, abi.ConnectionRequired, k.call("ana/work", "asks", `{}`).Kind)
	require.Len(t, k.SecretLinks().open, 1)
}
