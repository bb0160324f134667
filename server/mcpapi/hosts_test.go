package mcpapi_test

import (
	"flag"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// hosts runs the tests over HTTP a second way: with this number of hosts on one engine,
// each request goes to the next host.
var hosts = flag.Int("hosts", 1, "hosts that take turns with the requests of a test")

// serveHosts serves services with that configuration.
func serveHosts(t *testing.T, cfg server.Config, over mcpapi.Config) *endpoint {
	t.Helper()
	return serveSome(t, *hosts, cfg, over)
}

func serveSome(t *testing.T, n int, cfg server.Config, over mcpapi.Config) *endpoint {
	t.Helper()
	if n > 1 && cfg.Engine == nil && cfg.DataDir == "" {
		cfg.Engine = memory.New()
	}
	e := &endpoint{t: t, service: open(t, cfg), turn: new(atomic.Int64)}
	e.Handler = handle(t, e.service, over)
	for range n - 1 {
		e.others = append(e.others, handle(t, open(t, cfg), over))
	}
	return e
}

func handle(t *testing.T, s *server.Service, over mcpapi.Config) *mcpapi.Handler {
	t.Helper()
	h, err := mcpapi.NewHandler(s, over)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

// next is the host that gets the next request.
func (e *endpoint) next() http.Handler {
	if len(e.others) == 0 {
		return e.Handler
	}
	all := append([]*mcpapi.Handler{e.Handler}, e.others...)
	return all[int(e.turn.Add(1))%len(all)]
}

// needsOneHost skips a test of something that each host has for itself.
func needsOneHost(t *testing.T, what string) {
	t.Helper()
	if *hosts > 1 {
		t.Skip("each host has its own " + what)
	}
}

// A tool that asks twice is answered at three hosts.
func TestAskByCallingAnotherHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveSome(t, 3, askers(), mcpapi.Config{})
		_, m := e.ask("ana", canAsk, "tools/call", colors)
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("step1", `{"name":"Ana"}`, m.Result["requestState"].(string)))
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("step2", `{"color":"red"}`, m.Result["requestState"].(string)))
		require.Equal(t, "Ana likes red", m.Result["content"].([]any)[0].(map[string]any)["text"], "%v", m)
	})
}
