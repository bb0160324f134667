package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// serveEnv names the folder of compiled plugins of a process that serves.
const serveEnv = "TURNS_SERVE"

func serve(ctx context.Context, cacheDir string) error {
	o := &office{}
	o.reset()
	service, err := server.Open(ctx, config(o, true, cacheDir))
	if err != nil {
		return err
	}
	defer service.Close(ctx)
	return mcpapi.Run(ctx, service, mcpapi.Config{Version: "1"})
}

// BenchmarkTwenty compares twenty calls of a tool that answers at once with a script that
// makes them, over HTTP and over stdio to a process of its own: medians of the time on the
// clock, taken in turn, without the time of a model. The tokens are in the table of the page.
func BenchmarkTwenty(b *testing.B) {
	cacheDir := b.TempDir()
	sessions := map[string]*mcp.ClientSession{"http": overHTTP(b, cacheDir), "stdio": overStdio(b, cacheDir)}

	times := map[string][]time.Duration{}
	round := func() {
		for transport, session := range sessions {
			for name, do := range map[string]func(){
				"calls":          func() { callAll(b, session, stockCalls()...) },
				"script":         func() { callAll(b, session, call{server.Exec, args{"code": dedent(oneByOne)}}) },
				"calls-at-once":  func() { callAtOnce(b, session, stockCalls()) },
				"script-at-once": func() { callAll(b, session, call{server.Exec, args{"code": dedent(atOnce)}}) },
			} {
				start := time.Now()
				do()
				times[transport+"-"+name] = append(times[transport+"-"+name], time.Since(start))
			}
		}
	}
	round()
	clear(times)
	for b.Loop() {
		round()
	}

	median := func(name string) float64 {
		slices.Sort(times[name])
		return float64(times[name][len(times[name])/2].Microseconds()) / 1000
	}
	for transport := range sessions {
		for _, how := range []string{"", "-at-once"} {
			calls, script := median(transport+"-calls"+how), median(transport+"-script"+how)
			b.ReportMetric(calls, transport+"-calls"+how+"-ms")
			b.ReportMetric(script, transport+"-script"+how+"-ms")
			b.ReportMetric(script/calls, transport+"-script/calls"+how)
		}
	}
	b.ReportMetric(0, "ns/op") // of all of them: says nothing
}

func callAll(b *testing.B, session *mcp.ClientSession, calls ...call) {
	for _, c := range calls {
		r, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: c.Name, Arguments: c.Input})
		if err != nil || r.IsError {
			b.Errorf("%s: %v %v", c.Name, r, err)
		}
	}
}

func callAtOnce(b *testing.B, session *mcp.ClientSession, calls []call) {
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() { callAll(b, session, c) })
	}
	all.Wait()
}

func overHTTP(b *testing.B, cacheDir string) *mcp.ClientSession {
	o := &office{}
	o.reset()
	service, err := server.Open(b.Context(), config(o, true, cacheDir))
	if err != nil {
		b.Fatal(err)
	}
	handler, err := mcpapi.NewHandler(service, mcpapi.Config{Version: "1"})
	if err != nil {
		b.Fatal(err)
	}

	at := httptest.NewServer(handler)
	b.Cleanup(func() {
		at.Close()
		handler.Close()
		_ = service.Close(context.Background())
	})
	return connect(b, &mcp.StreamableClientTransport{Endpoint: at.URL})
}

func overStdio(b *testing.B, cacheDir string) *mcp.ClientSession {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+cacheDir)
	cmd.Stderr = os.Stderr
	return connect(b, &mcp.CommandTransport{Command: cmd})
}

func connect(b *testing.B, transport mcp.Transport) *mcp.ClientSession {
	session, err := mcp.NewClient(&mcp.Implementation{Name: "turns", Version: "1"}, nil).Connect(context.Background(), transport, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = session.Close() })
	return session
}
