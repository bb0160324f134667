package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// withSender adds a tool that takes ten seconds for a letter, and counts them.
func withSender(t *testing.T, f *fixture) *atomic.Int32 {
	t.Helper()
	letters := &atomic.Int32{}
	type in struct {
		To string `json:"to,omitempty"`
	}
	err := f.service.Register(gotool.Tool{Name: "send", Description: "For tests.", Handler: gotool.Handle(func(ctx context.Context, _ *gotool.Call, _ in) (string, error) {
		n := letters.Add(1)
		select {
		case <-time.After(10 * time.Second):
			return fmt.Sprintf("letter %d", n), nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})})
	require.NoError(t, err)
	return letters
}

// hangUp sends a request, and closes the connection before the answer.
func (f *fixture) hangUp(after time.Duration, method, path, body string, headers ...string) {
	f.t.Helper()
	conn := f.dial("tcp")
	go func() { _ = newRequest(f.t, method, path, body, headers...).Write(conn) }()
	time.Sleep(after)
	_ = conn.Close()
}

// A call with a key continues without its client, acts once, and its result is kept.
func TestCallWithAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{})
		letters := withSender(t, f)
		const call, key = `{"tool":"send","args":{"to":"bo"}}`, wire.KeyHeader
		f.hangUp(time.Second, "POST", "/v1/calls", call, key, "k")
		for range 3 {
			got := f.ask("POST", "/v1/calls", call, key, "k")
			require.Equal(t, "letter 1", got["value"])
			require.Equal(t, "success", got["kind"])
			time.Sleep(time.Hour)
		}
		require.EqualValues(t, 1, letters.Load())
		require.Empty(t, f.ask("GET", "/v1/notices", "")["notices"])

		run := f.ask("GET", "/v1/runs", "")["runs"].([]any)[0].(map[string]any)
		require.Equal(t, "k", run["idempotency_key"])
		require.Equal(t, "succeeded", run["status"])

		p := f.refused("POST", "/v1/calls", `{"tool":"send","args":{"to":"al"}}`, key, "k")
		require.Equal(t, http.StatusConflict, p.Status)
		require.Equal(t, "the idempotency key was used for another tool or other arguments: use a new one", p.Detail)
		require.Equal(t, "letter 2", f.ask("POST", "/v1/calls", call, key, "k", wire.SessionHeader, "other")["value"])
		for given, want := range map[string]string{
			"":                       "Idempotency-Key: empty: give a key, or leave the header out",
			strings.Repeat("x", 129): "Idempotency-Key: longer than 128 characters",
		} {
			require.Equal(t, want, f.refused("POST", "/v1/calls", call, key, given).Detail)
		}
		require.Contains(t, f.refused("POST", "/v1/calls", call, key, "k", wire.SessionHeader, "").Detail, "requires the header Toolhost-Session")
	})
}

// Without a key, equal calls are separate calls: at the same time, one after the other,
// and after one that ended with its client.
func TestEqualCallsAreCallsOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{})
		letters := withSender(t, f)
		const call = `{"tool":"send"}`
		go f.hangUp(5*time.Second, "POST", "/v1/calls", call)
		time.Sleep(time.Second)
		require.Equal(t, "letter 2", f.ask("POST", "/v1/calls", call)["value"], "the first one runs")
		for i := range 100 {
			require.Equal(t, fmt.Sprint("letter ", 3+i), f.ask("POST", "/v1/calls", call)["value"])
		}
		require.EqualValues(t, 102, letters.Load())
	})
}

// A call with a key for which there is no room is not made, and can be repeated.
func TestCallWithAKeyAtALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{})
		withSender(t, f)
		for i := range 32 {
			go f.hangUp(time.Second, "POST", "/v1/calls", fmt.Sprintf(`{"tool":"send","args":{"to":"%d"}}`, i), wire.KeyHeader, fmt.Sprint(i))
		}
		time.Sleep(2 * time.Second)
		p := f.refused("POST", "/v1/calls", `{"tool":"send"}`, wire.KeyHeader, "k")
		require.Equal(t, wire.CodeLimit, p.Code)
		require.Contains(t, p.Detail, "this session already has the maximum of 32 calls that are runs")
		time.Sleep(time.Minute)
		require.Equal(t, "success", f.ask("POST", "/v1/calls", `{"tool":"send"}`, wire.KeyHeader, "k")["kind"])
	})
}
