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

// mailed is a call over a transport.
type mailed struct {
	r       abi.Result
	err     error
	settles []func(delivered bool)
}

func (m *mailed) settle(delivered bool) {
	for _, f := range m.settles {
		f(delivered)
	}
}

func (p *postOffice) mail(ctx context.Context, req Request) *mailed {
	m := &mailed{}
	if req.Session == "" {
		req.Session = alice
	}
	if req.Tool == "" {
		req.Tool = "send"
	}
	req.Receipt = func(settle func(bool)) { m.settles = append(m.settles, settle) }
	m.r, m.err = p.Call(ctx, req)
	return m
}

func to(args string) Request { return Request{Args: json.RawMessage(args)} }

// A repeat while the call runs waits for it, however its arguments are written.
func TestRepeatOfARunningCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		first := make(chan *mailed)
		go func() { first <- p.mail(t.Context(), to(`{"to":"bo","seconds":60}`)) }()
		time.Sleep(20 * time.Second)

		began := time.Now()
		again := p.mail(t.Context(), to(`{ "seconds": 60, "to": "bo" }`))
		require.Equal(t, 40*time.Second, time.Since(began))
		require.JSONEq(t, `"letter 1"`, string(again.r.Value))
		require.Equal(t, "This repeats a call of send that was still running. It ran once, and this is its result. To run it again, call it again.", again.r.Note)
		require.EqualValues(t, 1, p.letters.Load())
		m := <-first
		require.Empty(t, m.r.Note)
		m.settle(true)
		again.settle(true)

		p.mail(t.Context(), to(`{"to":"bo","seconds":60}`)).settle(true)
		require.EqualValues(t, 2, p.letters.Load(), "the answer was delivered: that is another letter")
	})
}

// A client that has the answer to its repeat may call again before the transport knows that.
func TestCallAfterARepeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		p.mail(t.Context(), to(`{}`)).settle(false)
		again := p.mail(t.Context(), to(`{}`))
		require.NotEmpty(t, again.r.Note)

		next := make(chan *mailed)
		go func() { next <- p.mail(t.Context(), to(`{}`)) }()
		synctest.Wait()
		require.EqualValues(t, 1, p.letters.Load(), "it waits until it is known what became of the answer")
		again.settle(true)
		m := <-next
		require.Empty(t, m.r.Note)
		require.EqualValues(t, 2, p.letters.Load())
		m.settle(true)
	})
}

// An answer that was not delivered waits for a repeat.
func TestRepeatOfALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		first := p.mail(t.Context(), to(`{"to":"nobody"}`))
		require.Equal(t, abi.ToolError, first.r.Kind)
		first.settle(false)

		again := p.mail(t.Context(), to(`{"to":"nobody"}`))
		require.Equal(t, "returned to sender", again.r.Error)
		require.Equal(t, "This repeats a call of send whose answer could not be delivered. It was not run again, and this is its result. To run it again, call it again.", again.r.Note)
		again.settle(false)
		again = p.mail(t.Context(), to(`{"to":"nobody"}`))
		require.NotEmpty(t, again.r.Note, "nor was this one")
		again.settle(true)
		require.EqualValues(t, 1, p.letters.Load())

		p.mail(t.Context(), to(`{"to":"nobody"}`)).settle(false)
		require.EqualValues(t, 2, p.letters.Load())
		time.Sleep(lostLife + time.Second)
		p.mail(t.Context(), to(`{"to":"nobody"}`)).settle(true)
		require.EqualValues(t, 3, p.letters.Load(), "it is not kept for ever")
		require.Empty(t, p.repeats.calls)
		require.Empty(t, p.repeats.lost)
		require.Zero(t, p.repeats.bytes)
	})
}

// A repeat that comes before the transport knows waits until it does: a client that has
// read its answer may call again at once.
func TestRepeatBeforeTheReceipt(t *testing.T) {
	for delivered, letters := range map[bool]int32{true: 2, false: 1} {
		bubble(t, func(t *testing.T) {
			p := openPost(t, Config{})
			first, again := p.mail(t.Context(), to(`{}`)), make(chan *mailed)
			go func() { again <- p.mail(t.Context(), to(`{}`)) }()
			synctest.Wait()
			require.EqualValues(t, 1, p.letters.Load())
			first.settle(delivered)
			(<-again).settle(true)
			require.Equal(t, letters, p.letters.Load())
		})
	}
}

// An answer that a client gets late, in a stream that it resumed, is delivered.
func TestRepeatOfALateAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		first := p.mail(t.Context(), to(`{}`))
		first.settle(false)
		first.settle(true)
		p.mail(t.Context(), to(`{}`)).settle(true)
		require.EqualValues(t, 2, p.letters.Load())
	})
}

// These calls are never attached to one another.
func TestCallsThatAreNoRepeats(t *testing.T) {
	for name, second := range map[string]Request{
		"idempotent": {Tool: "resend"}, "readonly": {Tool: "look"}, "another session": {Session: bob},
		"other arguments": to(`{"to":"bo"}`), "another tool": {Tool: "resend", Args: json.RawMessage(`{}`)},
	} {
		bubble(t, func(t *testing.T) {
			p := openPost(t, Config{})
			first := second
			if name == "another session" || name == "other arguments" || name == "another tool" {
				first = Request{}
			}
			p.mail(t.Context(), first).settle(false)
			again := p.mail(t.Context(), second)
			require.Empty(t, again.r.Note)
			again.settle(true)
			require.EqualValues(t, 2, p.letters.Load(), name)
		})
	}
}

// A program that calls in Go has its answer when Call returns.
func TestCallInGoIsDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		p.call(alice, "send", `{}`)
		p.call(alice, "send", `{}`)
		require.EqualValues(t, 2, p.letters.Load())
	})
}

// A caller who leaves takes the call along only if nobody else waits for it.
func TestRepeatWhoseFirstCallerLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		ctx, leave := context.WithCancel(t.Context())
		go func() { p.mail(ctx, to(`{"seconds":60}`)).settle(false) }()
		time.Sleep(time.Second)
		time.AfterFunc(time.Second, leave)
		again := p.mail(t.Context(), to(`{"seconds":60}`))
		require.JSONEq(t, `"letter 1"`, string(again.r.Value))
		again.settle(true)
		require.EqualValues(t, 1, p.letters.Load())
	})
}

// A call that was stopped halfway may have taken effect: its repeat is told so, once.
func TestRepeatOfAStoppedCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		first := p.mail(ctx, to(`{"seconds":60}`))
		require.Equal(t, abi.CanceledKind, first.r.Kind)
		require.ErrorIs(t, first.err, context.Canceled)
		first.settle(false)
		time.Sleep(3 * time.Second)

		again := p.mail(t.Context(), to(`{"seconds":60}`))
		require.Equal(t, abi.ToolError, again.r.Kind)
		require.Equal(t, "send was not run again: the same call was stopped 3s ago, before its end, because its caller had left. "+
			"It may have taken effect: check that first. To run it again, call it again", again.r.Error)
		again.settle(true)
		require.EqualValues(t, 1, p.letters.Load())
		p.mail(t.Context(), to(`{"seconds":60}`)).settle(true)
		require.EqualValues(t, 2, p.letters.Load())
	})
}

// A call that has not begun when its caller leaves has no effect.
func TestRepeatOfACallThatNeverBegan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := Config{}
		cfg.Host.TotalCalls = 1
		p := openPost(t, cfg)
		go func() { p.mail(t.Context(), to(`{"seconds":60,"to":"slow"}`)).settle(true) }()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		p.mail(ctx, to(`{}`)).settle(false)
		again := p.mail(t.Context(), to(`{}`))
		require.JSONEq(t, `"letter 2"`, string(again.r.Value))
		again.settle(true)
	})
}

// A call that continues as a run is attached to until that has ended.
func TestRepeatOfAParkedCall(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			p := openPost(t, Config{ParkAfter: 10 * time.Second})
			first := p.mail(t.Context(), to(`{"seconds":15}`))
			require.Contains(t, string(first.r.Value), `"type":"background"`)
			first.settle(delivered)
			again := p.mail(t.Context(), to(`{"seconds":15}`))
			require.JSONEq(t, `"letter 1"`, string(again.r.Value), "it waited for the end of the run")
			require.Contains(t, again.r.Note, "It was not run again")
			again.settle(true)
			require.Empty(t, p.notices(alice), "which the model has seen")

			again = p.mail(t.Context(), to(`{"seconds":15}`))
			require.Contains(t, string(again.r.Value), `"type":"background"`)
			again.settle(true)
			time.Sleep(time.Minute)
			require.EqualValues(t, 2, p.letters.Load())
		})
	}
}

// A spawn whose answer was lost is not made twice either.
func TestRepeatOfASpawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		spawn := Request{Tool: SpawnBackground, Args: json.RawMessage(`{"tool":"send","args":{}}`)}
		first := p.mail(t.Context(), spawn)
		first.settle(false)
		again := p.mail(t.Context(), spawn)
		require.Equal(t, string(first.r.Value), string(again.r.Value))
		again.settle(true)
		p.mail(t.Context(), spawn).settle(true)
		time.Sleep(time.Second)
		require.EqualValues(t, 2, p.letters.Load())
	})
}

// Spawns at the same time are meant as two.
func TestSpawnsAtTheSameTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		spawns := make(chan bool)
		for range 3 {
			go func() {
				m := p.mail(t.Context(), Request{Tool: SpawnBackground, Args: json.RawMessage(`{"tool":"send","args":{}}`)})
				m.settle(true)
				spawns <- m.r.IsSuccess() && m.r.Note == ""
			}()
		}
		for range 3 {
			require.True(t, <-spawns)
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 3, p.letters.Load())
	})
}

// A call that was refused has not acted: its repeat is checked anew.
func TestRepeatOfARefusedCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		s := open(t, Config{Approve: func(context.Context, Approval) error {
			if asked++; asked == 1 {
				return errors.New("not now")
			}
			return nil
		}}, "dangerous")
		p := &postOffice{service: s}
		first := p.mail(t.Context(), Request{Tool: "dangerous"})
		require.ErrorIs(t, first.err, ErrApproval)
		first.settle(false)
		require.True(t, p.mail(t.Context(), Request{Tool: "dangerous"}).r.IsSuccess())
		require.Equal(t, 2, asked)
	})
}

// What is kept of lost answers is bounded: by session, in number and in bytes.
func TestLostAnswersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		lose := func(session, args string) {
			req := to(args)
			req.Session = session
			p.mail(t.Context(), req).settle(false)
		}
		for i := range 40 {
			lose(alice, fmt.Sprintf(`{"to":"%d"}`, i))
		}
		require.Len(t, p.repeats.lost, maxLostSession)
		for i := range maxLost {
			lose(fmt.Sprintf("s%d", i), `{}`)
		}
		require.Len(t, p.repeats.lost, maxLost)
		require.Len(t, p.repeats.calls, maxLost)
	})
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{Limits: Limits{Timeout: 100 * time.Hour}, MaxLimits: Limits{Timeout: 1000 * time.Hour, Background: 1000 * time.Hour}, Park: ParkNever})
		p.mail(t.Context(), to(fmt.Sprintf(`{"seconds":%d}`, maxLostAnswer+2000))).settle(false)
		require.Zero(t, p.repeats.bytes)
		again := p.mail(t.Context(), to(fmt.Sprintf(`{"seconds":%d}`, maxLostAnswer+2000)))
		require.Regexp(t, `^send was not run again: the same call has ended, but its answer of \d+ bytes could not be delivered, and is too large to be kept`, again.r.Error)
		again.settle(true)
		require.EqualValues(t, 1, p.letters.Load())
	})
}

// The key of a call: what a repeat gets.
func TestCallWithAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		keyed := func(session, tool, args string) *mailed {
			return p.mail(t.Context(), Request{Session: session, Tool: tool, Args: json.RawMessage(args), Key: "k"})
		}
		first := keyed(alice, "send", `{"to":"bo"}`)
		require.JSONEq(t, `"letter 1"`, string(first.r.Value))
		first.settle(true)
		again := keyed(alice, "send", `{ "to": "bo" }`)
		require.JSONEq(t, `"letter 1"`, string(again.r.Value))
		require.EqualValues(t, 1, p.letters.Load())
		require.Empty(t, p.notices(alice))

		for _, other := range []*mailed{keyed(alice, "send", `{"to":"al"}`), keyed(alice, "look", `{"to":"bo"}`)} {
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
		m.settle(false)

		again := p.mail(t.Context(), req)
		require.JSONEq(t, `"letter 1"`, string(again.r.Value))
		again.settle(true)
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
	p.mail(t.Context(), Request{Tool: "plain"}).settle(false)
	require.NotEmpty(t, p.mail(t.Context(), Request{Tool: "plain"}).r.Note)
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
		"call fuel true, success, run false", "repeat fuel false, success, run false",
		"call fuel true, success, run true", "repeat fuel false, success, run true",
	}, calls)
}
