package mcpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

const toolsList = `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`

// A client of a revision with sessions has its calls, its answers to questions and its
// cancellations at hosts that take turns.
func TestSessionOverHosts(t *testing.T) {
	e := serveSome(t, 3, askers(), mcpapi.Config{})
	require.NoError(t, e.service.Compile(t.Context(), func(int, int, string, error) {})) // on a busy machine it takes longer than a call is waited for
	web := httptest.NewServer(e)
	t.Cleanup(web.Close)
	var mu sync.Mutex
	both := make(chan struct{})
	asked := 0
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}},
		ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			mu.Lock()
			if asked++; asked == 2 {
				close(both)
			}
			mu.Unlock()
			select { // so that two hosts ask at the same time
			case <-both:
			case <-ctx.Done():
			}
			if strings.Contains(r.Params.Message, "yes.txt") {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
			}
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: web.URL}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })

	for range 4 {
		tools, err := session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		require.NotEmpty(t, tools.Tools)
	}

	var calls sync.WaitGroup
	texts := map[string]string{}
	for _, name := range []string{"yes.txt", "no.txt"} {
		calls.Go(func() {
			r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "confirm_delete", Arguments: map[string]any{"filename": name, "seconds": 0}})
			text := fmt.Sprint(err)
			if err == nil {
				text = r.Content[0].(*mcp.TextContent).Text
			}
			mu.Lock()
			defer mu.Unlock()
			texts[name] = text
		})
	}
	calls.Wait()
	require.Equal(t, map[string]string{"yes.txt": "yes.txt: accept", "no.txt": "no.txt: decline"}, texts)
}

// A cancellation that another host gets ends the call.
func TestCancelAtAnotherHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := zooConfig(server.Config{})
		e := serveSome(t, 2, cfg, mcpapi.Config{})
		session := e.begin("ana")
		began, answered := time.Now(), make(chan struct{})
		go func() {
			defer close(answered)
			e.within("ana", session, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"forever","arguments":{}}}`)
		}()
		time.Sleep(5 * time.Second)
		w, _ := e.within("ana", session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		require.Equal(t, http.StatusAccepted, w.Code)
		<-answered
		require.LessOrEqual(t, time.Since(began), 6*time.Second)
	})
}

// What a client says in one session does nothing to another, though both began alike.
func TestSessionsOverHostsAreApart(t *testing.T) {
	for _, other := range []string{"ana", "mallory"} {
		t.Run(other, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := serveSome(t, 2, zooConfig(server.Config{}), mcpapi.Config{})
				session, second := e.begin("ana"), e.begin(other)
				answered := make(chan response, 1)
				go func() {
					_, m := e.within("ana", session, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"sleeper","arguments":{"a":1}}}`)
					answered <- m
				}()
				time.Sleep(time.Second)
				for range 2 {
					e.within(other, second, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
				}
				require.Equal(t, http.StatusNoContent, e.send(http.MethodDelete, "", "User", other, "Mcp-Session-Id", second).Code)
				m := <-answered
				require.Contains(t, fmt.Sprint(m.Result), `"a":1`, "%v", m.Error)
			})
		})
	}
}

// A session continues at a host that was restarted, if its client is the same, and not
// after its end, at no host.
func TestSessionContinues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := zooConfig(server.Config{Engine: memory.New()})
		e := serveSome(t, 1, cfg, mcpapi.Config{})
		session := e.begin("ana")
		require.Less(t, len(session), 600, "it is in each request")

		next := serveSome(t, 3, cfg, mcpapi.Config{})
		next.works("ana", session)
		w, _ := next.within("mallory", session, toolsList)
		require.Equal(t, http.StatusNotFound, w.Code)
		w, _ = next.within("ana", session[:len(session)-5]+"AAAAA", toolsList)
		require.Equal(t, http.StatusNotFound, w.Code)

		require.Equal(t, http.StatusNoContent, next.send(http.MethodDelete, "", "User", "ana", "Mcp-Session-Id", session).Code)
		for range 3 {
			w, _ := next.within("ana", session, toolsList)
			require.Equal(t, http.StatusNotFound, w.Code)
		}
		w, _ = e.within("ana", session, toolsList)
		require.Equal(t, http.StatusNotFound, w.Code)
	})
}

// The session of the requests of a client that names none is the same at each host.
func TestUnnamedSessionContinues(t *testing.T) {
	e := serveSome(t, 3, zooConfig(server.Config{}), mcpapi.Config{})
	e.unnamed = true
	session := e.begin("ana")
	call := func(tool, args string) string {
		_, m := e.within("ana", session, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args))
		return fmt.Sprint(m.Result)
	}
	id := anyTask.FindString(call("spawn_background", `{"tool":"forever","args":{}}`))
	require.NotEmpty(t, id)
	require.Contains(t, call("check_background", fmt.Sprintf(`{"task_id":%q,"wait_seconds":0}`, id)), id)
	require.Contains(t, call("stop_background", fmt.Sprintf(`{"task_id":%q,"force":true}`, id)), "stop")
	require.Contains(t, call("check_background", fmt.Sprintf(`{"task_id":%q,"wait_seconds":30}`, id)), "canceled")
}
