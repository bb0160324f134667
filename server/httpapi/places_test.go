package httpapi_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// Whatever clients send, and however they leave, nothing that there is a limited
// number of stays taken.
func TestNoPlaceIsLost(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, _ := serveMCP(t, httpapi.Config{OAuth: startIssuer(t).trust(), Token: "s3cret"}, "echo", "sleeper", "panics")
				synctest.Wait() // it listens, see serve
				f.net = &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
				held := f.ServeCounted(f.net)
				random := rand.New(rand.NewPCG(seed, 1))
				for range 150 {
					conn := f.dial([]string{"tcp", "unix"}[random.IntN(2)])
					go func() { _, _ = io.Copy(io.Discard, conn) }()
					text := hostileRequest(t, random)
					_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
					_, _ = io.WriteString(conn, text[:len(text)-random.IntN(2)*random.IntN(len(text))])
					synctest.Wait()
					if random.IntN(3) > 0 {
						_, _ = io.WriteString(conn, "X") // from now on it is not seen to leave
					}
					_ = conn.Close()
				}
				time.Sleep(10 * time.Minute) // the longest wait, and the time limit of a call
				requests, bodies := held()
				require.Zero(t, requests)
				require.Zero(t, bodies)
				require.Zero(t, f.OpenAnswers())
			})
		})
	}
}

// hostileRequest returns a request made of parts that do not belong together.
func hostileRequest(t *testing.T, random *rand.Rand) string {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	body := pick("", "{", `{"tool":"echo"}`, `{"tool":"sleeper","limits":{"timeout_seconds":60}}`, `{"tool":"panics"}`, initializeMCP,
		fmt.Sprintf(modernCall, 1, "echo"), fmt.Sprintf(modernCall, 1, "panics"), fmt.Sprintf(legacyCall, 1, "sleeper"), strings.Repeat("[", 4000),
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{`+clientMeta+`,"notifications":{"toolsListChanged":true}}}`)
	head := pick("GET", "POST", "HEAD", "DELETE", "OPTIONS", "PUT") + " " +
		pick("/v1/events", "/v1/runs", "/v1/calls", "/mcp", "/mcp", "/v1/openapi.json", "//v1/runs", "/healthz", "*", "/v1/runs?wait=1m&id=bg_"+strings.Repeat("a", 26),
			"http://localhost/v1/tools", "/.well-known/oauth-protected-resource", "/v1%2Fruns", "/ui/..%2fv1/runs") + " HTTP/1.1\nHost: localhost\n"
	for range random.IntN(7) {
		head += pick("Accept: text/event-stream", "Accept: application/json, text/event-stream", "Accept: */*", "Accept-Encoding: gzip", "Content-Encoding: gzip",
			"Toolhost-Session: a/b", "Toolhost-Session: x", "Toolhost-Session: ?", "Mcp-Session-Id: A", "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call",
			"Mcp-Method: subscriptions/listen", "Mcp-Name: echo", "Authorization: Basic YTpiCg==", "Authorization: Bearer s3cret",
			"Authorization: Bearer "+tokenOf(t, "ana"), "Origin: null", "Expect: 100-continue", "Range: bytes=0-1") + "\n"
	}
	head += pick("", "Content-Type: application/json\n")
	if random.IntN(5) == 0 {
		return strings.ReplaceAll(head+"Transfer-Encoding: chunked\n\n", "\n", "\r\n") + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	return strings.ReplaceAll(head+fmt.Sprintf("Content-Length: %d\n\n", len(body)), "\n", "\r\n") + body
}
