package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/httpapi"
)

// Clients close their connection as soon as they have read the answer. That has no
// meaning: a hundred equal calls act a hundred times, and a notice comes once.
func TestClientsThatLeaveRightAfterTheAnswer(t *testing.T) {
	f, _ := serveMCP(t, httpapi.Config{})
	var acts atomic.Int32
	require.NoError(t, f.service.Register(gotool.Tool{
		Name: "act", Description: "For tests.", Hints: abi.Hints{SupportsBackground: true},
		Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ struct{}) (gotool.None, error) {
			c.Progress(1, 2, "half way") // or the answer is no stream
			return gotool.None{}, c.Content(abi.Block{Type: "text", Text: fmt.Sprintf("act %d.", acts.Add(1))})
		}),
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-served
	})

	const rest = "POST /v1/calls HTTP/1.1\nHost: localhost\nToolhost-Session: mallory\nContent-Type: application/json\nContent-Length: %d\n\n"
	const body = `{"tool":"act"}`
	legacy := f.beginMCP()
	for name, request := range map[string]func(i int) string{
		"HTTP": func(int) string { return fmt.Sprintf(rest, len(body)) + body },
		"MCP 2025": func(i int) string {
			body := fmt.Sprintf(legacyCall, i, "act")
			return headMCP(http.MethodPost, legacy, "", len(body)) + body
		},
		"MCP 2026": func(i int) string {
			body := fmt.Sprintf(modernCall, i, "act")
			return headMCP(http.MethodPost, "", "act", len(body)) + body
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.spawn("act", "Toolhost-Session", "mallory")
			f.ask("GET", "/v1/runs/"+id+"?wait=1m", "", "Toolhost-Session", "mallory")
			acts.Store(0)
			notices := 0
			for i := range 100 {
				said := readAndLeave(t, l.Addr().String(), request(i+1))
				require.Contains(t, said, fmt.Sprintf("act %d.", i+1))
				notices += strings.Count(said, "["+id+"] succeeded")
			}
			require.EqualValues(t, 100, acts.Load())
			if name == "HTTP" {
				require.Zero(t, notices, "only the results of MCP have notices")
			} else {
				require.Equal(t, 1, notices)
			}
		})
	}
}

// readAndLeave sends a request on a connection of its own, which it closes once it has
// read the answer of the tool.
func readAndLeave(t *testing.T, addr, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n"))
	require.NoError(t, err)

	var said []byte
	for part := make([]byte, 64<<10); ; {
		n, err := conn.Read(part)
		said = append(said, part[:n]...)
		if _, after, found := strings.Cut(string(said), "act "); found && strings.HasSuffix(after, "\n") || err != nil {
			return string(said)
		}
	}
}
