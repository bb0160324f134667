package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

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
	require.NoError(t, links.Use(t.Context(), token, valueOfAna))
	require.ErrorIs(t, links.Use(t.Context(), token, valueOfBo), ErrLink)

	require.Equal(t, abi.Success, k.call("ana/work", "asks", `{}`).Kind)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen)
	require.Equal(t, abi.ConnectionRequired, k.call("bo/work", "asks", `{}`).Kind)
	run := k.settled("bo/work", k.spawn("bo/work", "asks", `{}`))
	require.Contains(t, run.Error.Message, page+other, "a run says it too")
	require.NoError(t, k.Close(done()))
	k.nowhere(t, valueOfAna)
}

// A plugin that names a secret it was not granted gets no link.
func TestSecretLinkNeedsGrant(t *testing.T) {
	k := openKeyed(t, "liar")
	k.SecretLinks().ServeAt(page)
	r := k.call("ana/work", "liar", `{}`)
	require.Equal(t, "connect example first", r.Error)
	require.Empty(t, r.Connection.SetupURL)
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
		"refused": {Request{Tool: "asks"}, func(*keyedWeb) func(SecretNeed) error {
			return func(SecretNeed) error { return ErrNotConnected }
		}, 1, abi.ConnectionRequired, 0},
		"asked by calling again": {Request{Tool: "asks"}, func(*keyedWeb) func(SecretNeed) error {
			return func(SecretNeed) error { return ErrAskAgain }
		}, 1, abi.CanceledKind, 0},
		"a plugin that always claims to lack it": {Request{Tool: "claims"}, set, 1, abi.ConnectionRequired, 0},
		"a call with a key":                      {Request{Tool: "asks", Key: "one"}, never, 0, abi.ConnectionRequired, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := openKeyed(t, "claims")
			k.SecretLinks().ServeAt(page)
			r, asked, err := k.connects(t.Context(), test.req, test.do(k))
			require.Equal(t, test.kind, r.Kind, r.Error)
			require.Equal(t, test.asked, asked)
			require.Len(t, k.seen, test.sent)
			require.Equal(t, test.kind == abi.CanceledKind, errors.Is(err, ErrAskAgain))
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
	require.Equal(t, abi.ConnectionRequired, k.call("ana/work", "asks", `{}`).Kind)
}
