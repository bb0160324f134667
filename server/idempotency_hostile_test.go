package server

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// What somebody may try with keys, and what is answered.
func TestHostileKeys(t *testing.T) {
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
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := openPost(t, Config{})
				first, _ := p.Call(t.Context(), test.first)
				require.True(t, first.IsSuccess(), first.Error)
				second, _ := p.Call(t.Context(), test.second)
				if second.IsError() {
					require.Equal(t, test.answer, second.Error)
				} else {
					require.Contains(t, string(second.Value), test.answer)
				}
				synctest.Wait()
				require.Equal(t, test.letters, p.letters.Load())
			})
		})
	}
}
