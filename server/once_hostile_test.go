package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// What somebody may try with keys and repeats, and what is answered.
func TestHostileRepeats(t *testing.T) {
	const reused = "the idempotency key was used for another tool or other arguments: use a new one"
	keyed := func(tool, args, key string) Request {
		return Request{Session: alice, Tool: tool, Args: json.RawMessage(args), Key: key}
	}
	for _, test := range []struct {
		name    string
		first   Request
		second  Request
		answer  string // the error of the second, or a part of its value
		letters int32
	}{
		{"a key for other arguments", keyed("send", `{"to":"bo"}`, "k"), keyed("send", `{"to":"eve"}`, "k"), reused, 1},
		{"a key for another tool", keyed("send", `{}`, "k"), keyed("look", `{}`, "k"), reused, 1},
		{"a key for an argument more", keyed("send", `{}`, "k"), keyed("send", `{"to":""}`, "k"), reused, 1},
		{"a number written in another way", keyed("send", `{"seconds":0}`, "k"), keyed("send", `{"seconds":0.0}`, "k"), reused, 1},
		{"the key of another session", keyed("send", `{}`, "k"), Request{Session: "alice/other", Tool: "send", Key: "k"}, "letter 2", 2},
		{"the key of another user", Request{Session: "ana/default", Tool: "send", Key: "k"}, Request{Session: "bo/default", Tool: "send", Key: "k"}, "letter 2", 2},
		{"a key in another case", keyed("send", `{}`, "k"), keyed("send", `{}`, "K"), "letter 2", 2},
		{"a key with a space", keyed("send", `{}`, "k"), keyed("send", `{}`, "k "), "letter 2", 2},
		{"a key that looks like SQL", keyed("send", `{}`, "k"), keyed("send", `{}`, "k' OR '1'='1"), "letter 2", 2},
		{"a key of wild cards", keyed("send", `{}`, "k"), keyed("send", `{}`, "%"), "letter 2", 2},
		{"a key that is too long", keyed("send", `{}`, "k"), keyed("send", `{}`, strings.Repeat("k", 129)), "idempotency_key: longer than 128 characters", 1},
		{"a key without a session", keyed("send", `{}`, "k"), Request{Tool: "send", Key: "k"}, "idempotency_key: only with a session", 1},
		{"arguments that do not fit", keyed("send", `{}`, "k"), keyed("send", `{"to":1}`, "k"), "the arguments of send do not fit its schema: /to: expected string, found number", 1},
		{"a tool that is gone", keyed("send", `{}`, "k"), keyed("sent", `{}`, "k"), `no such tool: "sent", did you mean "send"?`, 1},
		{"a key for a schedule", keyed("send", `{}`, "k"), keyed(SpawnBackground, `{"tool":"send","args":{},"schedule":{"cron_expression":"* * * * *"}}`, "k"), "idempotency_key: not allowed for a schedule", 1},
		{"a spawn with the key of a call", keyed("send", `{}`, "k"), keyed(SpawnBackground, `{"tool":"send","args":{}}`, "k"), `"reused":true`, 1},
		{"a spawn of another tool with it", keyed("send", `{}`, "k"), keyed(SpawnBackground, `{"tool":"look","args":{}}`, "k"), reused, 1},
		{"the result of a lost answer in another session", Request{Session: alice, Tool: "send"}, Request{Session: bob, Tool: "send"}, "letter 2", 2},
		{"a name in another case", Request{Session: alice, Tool: "send", Args: json.RawMessage(`{"to":"bo"}`)}, Request{Session: alice, Tool: "send", Args: json.RawMessage(`{"To":"bo"}`)},
			`the arguments of send do not fit its schema: unknown field: To`, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := openPost(t, Config{})
				first := p.hostile(test.first)
				require.True(t, first.r.IsSuccess(), first.r.Error)
				first.settle(false)
				second := p.hostile(test.second)
				if second.r.IsError() {
					require.Equal(t, test.answer, second.r.Error)
				} else {
					require.Contains(t, string(second.r.Value), test.answer)
					require.Empty(t, second.r.Note)
				}
				second.settle(true)
				synctest.Wait()
				require.Equal(t, test.letters, p.letters.Load())
			})
		})
	}
}

// hostile is mail without its defaults.
func (p *postOffice) hostile(req Request) *mailed {
	m := &mailed{}
	req.Receipt = func(settle func(bool)) { m.settles = append(m.settles, settle) }
	m.r, m.err = p.Call(p.t.Context(), req)
	return m
}

// Many callers of the same call, who come and leave at any time, and whose answers get
// lost or not: it never acts twice before an answer was delivered, and nothing is left.
func TestHostileCrowd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openPost(t, Config{})
		ends := make(chan string, 200)
		for i := range 200 {
			go func() {
				time.Sleep(time.Duration(i*i%97) * time.Second / 10)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i*7%41)*time.Second/2)
				defer cancel()
				m := p.mail(ctx, to(`{"seconds":10}`))
				m.settle(ctx.Err() == nil)
				ends <- string(m.r.Kind)
			}()
		}
		kinds := map[string]int{}
		for range 200 {
			kinds[<-ends]++
		}
		require.NotZero(t, kinds[string(abi.Success)], "%v", kinds)
		require.NotZero(t, kinds[string(abi.CanceledKind)], "%v", kinds)
		time.Sleep(2 * lostLife)
		p.mail(t.Context(), to(`{}`)).settle(true)
		require.Empty(t, p.repeats.calls)
		require.Empty(t, p.repeats.lost)
		require.Zero(t, p.repeats.bytes)
		require.LessOrEqual(t, int(p.letters.Load()), 6, fmt.Sprint(kinds))
	})
}
