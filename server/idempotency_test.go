package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// postOffice has tools that count how often they act.
type postOffice struct {
	service
	letters atomic.Int32
}

type letter struct {
	To      string `json:"to,omitempty"`
	Seconds int    `json:"seconds,omitempty"`
}

func openPost(t *testing.T, cfg Config) *postOffice {
	t.Helper()
	p := &postOffice{}
	send := func(ctx context.Context, c *gotool.Call, in letter) (string, error) {
		n := p.letters.Add(1)
		select {
		case <-time.After(time.Duration(in.Seconds) * time.Second):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if in.To == "nobody" {
			return "", errors.New("returned to sender")
		}
		return fmt.Sprintf("letter %d", n) + strings.Repeat(".", max(0, in.Seconds-1000)), nil
	}
	for name, hints := range map[string]abi.Hints{
		"send": {SupportsBackground: true}, "resend": {SupportsBackground: true, Idempotent: true}, "look": {SupportsBackground: true, Readonly: true},
	} {
		cfg.Tools = append(cfg.Tools, gotool.Tool{Name: name, Description: "For tests.", Hints: hints, Handler: gotool.Handle(send)})
	}
	p.service = openFolder(t, cfg, nil)
	return p
}

// mailed is how a call ended.
type mailed struct {
	r   abi.Result
	err error
}

func (p *postOffice) mail(ctx context.Context, req Request) mailed {
	if req.Session == "" {
		req.Session = alice
	}
	if req.Tool == "" {
		req.Tool = "send"
	}
	r, err := p.Call(ctx, req)
	return mailed{r, err}
}

func to(args string) Request { return Request{Args: json.RawMessage(args)} }

// Without a key, equal calls of a session are as many calls: at the same time, one after
// the other, and after one whose caller has left.
func TestEqualCallsAreCallsOfTheirOwn(t *testing.T) {
	for _, call := range []Request{
		to(`{"to":"bo","seconds":60}`), {Tool: "resend"}, {Tool: "look"},
		{Tool: SpawnBackground, Args: json.RawMessage(`{"tool":"send","args":{"to":"bo"}}`)},
	} {
		bubble(t, func(t *testing.T) {
			p := openPost(t, Config{})
			answers := make(chan string)
			for range 3 {
				go func() { answers <- string(p.mail(t.Context(), call).r.Value) }()
			}
			different := map[string]bool{}
			for range 3 {
				different[<-answers] = true
			}
			require.Len(t, different, 3, call.Tool)
			different[string(p.mail(t.Context(), call).r.Value)] = true
			require.Len(t, different, 4, call.Tool)
			synctest.Wait()
			require.EqualValues(t, 4, p.letters.Load())
		})
	}
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		require.Equal(t, abi.CanceledKind, p.mail(ctx, to(`{"seconds":60}`)).r.Kind)
		require.JSONEq(t, `"letter 2"`, string(p.mail(t.Context(), to(`{"seconds":60}`)).r.Value), "its caller asked for it twice")
	})
}

// The key of a call: what a repeat gets.
func TestCallWithAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		keyed := func(session, tool, args string) mailed {
			return p.mail(t.Context(), Request{Session: session, Tool: tool, Args: json.RawMessage(args), Key: "k"})
		}
		first := keyed(alice, "send", `{"to":"bo"}`)
		require.JSONEq(t, `"letter 1"`, string(first.r.Value))
		again := keyed(alice, "send", `{ "to": "bo" }`)
		require.JSONEq(t, `"letter 1"`, string(again.r.Value))
		require.EqualValues(t, 1, p.letters.Load())
		require.Empty(t, p.notices(alice))

		for _, other := range []mailed{keyed(alice, "send", `{"to":"al"}`), keyed(alice, "look", `{"to":"bo"}`)} {
			require.ErrorIs(t, other.err, background.ErrKeyReused)
			require.Equal(t, wire.CodeConflict, ReasonOf(other.err).Code)
			require.Equal(t, "the idempotency key was used for another tool or other arguments: use a new one", other.r.Error)
		}
		require.JSONEq(t, `"letter 2"`, string(keyed(bob, "send", `{"to":"bo"}`).r.Value), "the key of another session")

		r, _ := p.Call(t.Context(), Request{Tool: "send", Key: "k"})
		require.Equal(t, "idempotency_key: only with a session", r.Error)
		r, _ = p.Call(t.Context(), Request{Session: alice, Tool: "send", Key: strings.Repeat("ü", 129)})
		require.Equal(t, "idempotency_key: longer than 128 characters", r.Error)
		r, _ = p.Call(t.Context(), Request{Session: alice, Tool: "send", Key: "k", Args: json.RawMessage(`{"to":3}`)})
		require.Contains(t, r.Error, "/to", "checks come first")
	})
}

// A caller who leaves does not end a call with a key, and the end of it is delivered
// with the repeat, or as a notice.
func TestCallWithAKeyIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		req := to(`{"seconds":60}`)
		req.Key = "k"
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		m := p.mail(ctx, req)
		require.ErrorIs(t, m.err, context.Canceled)

		again := p.mail(t.Context(), req)
		require.JSONEq(t, `"letter 1"`, string(again.r.Value))
		require.Empty(t, p.notices(alice), "its end was shown")
		require.EqualValues(t, 1, p.letters.Load())

		canceling, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("%w: it says so", ErrCancel)) })
		req.Key = "other"
		m = p.mail(canceling, req)
		require.Equal(t, abi.CanceledKind, m.r.Kind)
		again = p.mail(t.Context(), req)
		require.Equal(t, abi.CanceledKind, again.r.Kind)
		require.Equal(t, "the caller canceled the call: it says so", again.r.Error)
		require.EqualValues(t, 2, p.letters.Load())
	})
}

// A call with a key that takes long is answered with its run.
func TestCallWithAKeyIsParked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{ParkAfter: 10 * time.Second})
		req := to(`{"seconds":25}`)
		req.Key = "k"
		require.Contains(t, string(p.mail(t.Context(), req).r.Value), `"type":"background"`)
		require.Contains(t, string(p.mail(t.Context(), req).r.Value), `"type":"background"`)
		require.JSONEq(t, `"letter 1"`, string(p.mail(t.Context(), req).r.Value))
		require.EqualValues(t, 1, p.letters.Load())
	})
}

// How calls with a key end is what their repeats get.
func TestResultsThatAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Limits: Limits{Fuel: 1e7}}, "fails", "traps", "hog", "flood", "spin", "connect", "picture", "sketch", "exits", "late")
		p := &postOffice{service: s}
		for _, tool := range []string{"fails", "traps", "hog", "flood", "connect", "picture", "sketch", "exits", "late"} {
			first := p.mail(t.Context(), Request{Tool: tool, Key: tool})
			again := p.mail(t.Context(), Request{Tool: tool, Key: tool})
			require.Equal(t, first.r.Kind, again.r.Kind, tool)
			require.Equal(t, first.r.Limit, again.r.Limit, tool)
			require.Equal(t, first.r.Content, again.r.Content, tool)
			require.Equal(t, string(first.r.Value), string(again.r.Value), tool)
			if tool != "connect" {
				require.Equal(t, first.r.Error, again.r.Error, tool)
			}
			require.Equal(t, first.r.Usage.Fuel, again.r.Usage.Fuel, tool)
		}
	})
}

// A repeat is in the log as what it is, and costs nothing.
func TestRepeatsAreNotCountedTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	p := &postOffice{service: open(t, Config{DataDir: t.TempDir(), AuditDir: dir}, "plain")}
	p.mail(t.Context(), Request{Tool: "plain"})
	keyed := p.mail(t.Context(), Request{Tool: "plain", Key: "k"})
	require.Equal(t, keyed.r.Usage.Fuel, p.mail(t.Context(), Request{Tool: "plain", Key: "k"}).r.Usage.Fuel)
	require.NoError(t, p.Close(done()))

	found, err := audit.Read(dir, audit.Query{})
	require.NoError(t, err)
	var calls []string
	for _, e := range slices.Backward(found) {
		if e.Kind == audit.Call {
			calls = append(calls, fmt.Sprintf("%s fuel %t, %s, run %t", cmp.Or(e.Action, "call"), e.Fuel > 0, e.Outcome, strings.HasPrefix(e.ID, "bg_")))
		}
	}
	require.Equal(t, []string{
		"call fuel true, success, run false",
		"call fuel true, success, run true", "repeat fuel false, success, run true",
	}, calls)
}
