package mcpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// folder is a folder of plugins that a test changes between reloads.
type folder struct {
	fstest.MapFS
	t       *testing.T
	service *server.Service
}

func openFolder(t *testing.T) *folder {
	f := &folder{MapFS: fstest.MapFS{}, t: t}
	f.put("plain", "Does it.", false)
	f.service = open(t, server.Config{CacheDir: plugintest.CacheDir(), Folders: []plugins.Folder{{Path: "plugins", FS: f.MapFS}}})
	return f
}

// put writes a plugin that echoes. Each description makes different code.
func (f *folder) put(name, description string, background bool) {
	m := plugintest.Manifest(name)
	m.Tools[0].Description = description
	m.Tools[0].Hints = abi.Hints{Readonly: true, SupportsBackground: background}
	f.MapFS[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()}
}

func (f *folder) reload() {
	f.t.Helper()
	_, err := f.service.Reload(f.t.Context())
	require.NoError(f.t, err)
}

func stdioTransport(t *testing.T, s *server.Service) mcp.Transport {
	serverIn, clientOut := io.Pipe()
	clientIn, serverOut := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- mcpapi.Run(t.Context(), s, mcpapi.Config{Version: "test", In: serverIn, Out: serverOut})
	}()
	t.Cleanup(func() { <-ended })
	return &mcp.IOTransport{Reader: clientIn, Writer: clientOut}
}

func httpTransport(t *testing.T, s *server.Service) mcp.Transport {
	h, err := mcpapi.NewHandler(s, mcpapi.Config{Version: "test"})
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	t.Cleanup(h.Close)
	return &mcp.StreamableClientTransport{Endpoint: srv.URL}
}

// names returns the tools that a client is shown.
func names(t *testing.T, c *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := c.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Zero(t, list.TTLMs, "or clients would keep an old list")
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// Clients of both eras are told on both transports when the tools change, and then find
// the new tools. On a slow machine they are told twice.
func TestToolsChange(t *testing.T) {
	for transport, connect := range map[string]func(*testing.T, *server.Service) mcp.Transport{"stdio": stdioTransport, "http": httpTransport} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(transport+" "+version, func(t *testing.T) {
				f := openFolder(t)
				told := make(chan mcp.Meta, 10)
				client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
					ToolListChangedHandler: func(_ context.Context, req *mcp.ToolListChangedRequest) { told <- req.Params.GetMeta() },
				})
				c, err := client.Connect(t.Context(), connect(t, f.service), &mcp.ClientSessionOptions{ProtocolVersion: version})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				require.Equal(t, version, c.InitializeResult().ProtocolVersion)
				require.True(t, c.InitializeResult().Capabilities.Tools.ListChanged)
				require.Contains(t, c.InitializeResult().Capabilities.Extensions, "io.modelcontextprotocol/tasks", "a tool for it may come")
				require.Empty(t, c.InitializeResult().Instructions)
				heard := func(want ...string) {
					for again := true; again; again = !slices.Equal(want, names(t, c)) {
						meta := <-told
						_, subscribed := meta[mcp.MetaKeySubscriptionID]
						require.Equal(t, version >= "2026-07-28", subscribed)
					}
				}
				require.Equal(t, []string{"plain"}, names(t, c))

				f.put("long", "Takes long.", true)
				f.reload()
				heard("check_background", "long", "plain", "spawn_background", "stop_background")
				r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "long", Arguments: map[string]any{"n": 1}})
				require.NoError(t, err)
				require.Equal(t, `{"n":1}`, r.Content[0].(*mcp.TextContent).Text)

				delete(f.MapFS, "long.wasm")
				f.put("plain", "Does it otherwise.", false)
				f.reload()
				heard("plain")
				_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "long"})
				require.ErrorContains(t, err, `unknown tool "long"`)

				f.put("later", "Comes last.", true)
				f.reload()
				heard("check_background", "later", "plain", "spawn_background", "stop_background")
				again, err := client.Connect(t.Context(), connect(t, f.service), &mcp.ClientSessionOptions{ProtocolVersion: version})
				require.NoError(t, err)
				defer again.Close()
				require.Contains(t, again.InitializeResult().Instructions, "with spawn_background")
			})
		}
	}
}

// No list is half of one set and half of another, however often they change, and
// no call to a tool that stays fails.
func TestToolsChangeAtOnce(t *testing.T) {
	f := openFolder(t)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	c, err := client.Connect(t.Context(), httpTransport(t, f.service), nil)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "plain"}) // which reads its file
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		for ctx.Err() == nil {
			list, err := c.ListTools(t.Context(), nil)
			if !assert.NoError(t, err) {
				return
			}
			var words []string
			for _, tool := range list.Tools {
				if !strings.HasSuffix(tool.Name, "_background") && tool.Name != "plain" {
					words = append(words, tool.Description)
				}
			}
			assert.Len(t, slices.Compact(words), min(len(words), 1), "%v", words)
			r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "plain"})
			assert.NoError(t, err)
			assert.False(t, r.IsError)
		}
	})
	for n := range 100 {
		for _, name := range []string{"a", "b", "c"} {
			if delete(f.MapFS, name+".wasm"); n%3 > 0 {
				f.put(name, fmt.Sprint("Version ", n), n%2 == 0)
			}
		}
		f.reload()
	}
	stop()
	busy.Wait()
}

// A client that has not begun its session is told nothing.
func TestToolsChangeBeforeTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := openFolder(t)
		c := connect(t, f.service)
		synctest.Wait()
		f.put("new", "Is new.", false)
		f.reload()
		time.Sleep(time.Second)
		c.send([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n"))
		require.Contains(t, string(c.receive(1)), `"serverInfo"`)
		require.NoError(t, c.in.Close())
		rest, err := c.wait()
		require.NoError(t, err)
		require.Empty(t, rest)
	})
}

// A client of 2026-07-28 that listens hears of each change once, under the id of
// its subscription.
func TestListenHearsOnce(t *testing.T) {
	f := openFolder(t)
	h, err := mcpapi.NewHandler(f.service, mcpapi.Config{Version: "test"})
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	body := `{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatal("the stream has ended")
		return ""
	}
	require.Contains(t, next(), "notifications/subscriptions/acknowledged")
	for n := range 3 {
		f.put("plain", fmt.Sprint("Version ", n), false)
		f.reload()
		require.JSONEq(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"mine"}}}`, next())
	}
}
