package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// door is a way to make the call that is compared.
type door struct {
	name string
	call func(ctx context.Context) error
}

const (
	comparedArgs = `{"n":1,"text":"hello"}`
	compareRound = 250 * time.Millisecond
)

// compare measures a small call over HTTP next to the same call made in the
// process of the caller, in turns, so that what disturbs one disturbs all. A
// bare server of net/http, which reads the request and writes the same bytes,
// tells what of it is HTTP. Client and server share the processors.
func (l *load) compare() {
	if !l.whole {
		return
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel() // closes the connections
	doors := []door{l.inProcess(), l.overHTTP(ctx, "TCP", "tcp", l.server.base), l.overHTTP(ctx, "socket", "unix", l.server.socket), l.bare(ctx)}
	for _, callers := range []int{1, 8, 64} {
		took := make([][]time.Duration, len(doors))
		rounds := 0
		for began := time.Now(); rounds == 0 || time.Since(began) < l.duration/6; rounds++ {
			for i, d := range doors {
				took[i] = append(took[i], l.callers(callers, d)...)
			}
		}
		for _, q := range []struct {
			name string
			q    float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			in := quantile(took[0], q.q)
			for i, d := range doors {
				name := fmt.Sprintf("call %s, %d at a time, %s", d.name, callers, q.name)
				l.figures.add(name, ms(quantile(took[i], q.q)), "ms")
				if i > 0 {
					l.figures.add(name+", over in process", float64(quantile(took[i], q.q))/float64(in), "times")
				}
			}
		}
		for i, d := range doors {
			spent := float64(rounds) * compareRound.Seconds()
			l.figures.add(fmt.Sprintf("call %s, %d at a time, throughput", d.name, callers), float64(len(took[i]))/spent, "calls/s")
		}
	}
}

// callers makes calls by so many at a time, for one round.
func (l *load) callers(n int, d door) []time.Duration {
	ctx := l.t.Context()
	took := make([][]time.Duration, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	until := time.Now().Add(compareRound)
	for i := range n {
		all.Go(func() {
			for began := time.Now(); (began.Before(until) || took[i] == nil) && errs[i] == nil; began = time.Now() {
				errs[i] = d.call(ctx)
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	all.Wait()
	var joined []time.Duration
	for i := range n {
		require.NoError(l.t, errs[i], d.name)
		joined = append(joined, took[i]...)
	}
	return joined
}

// inProcess calls a Service of this process.
func (l *load) inProcess() door {
	cfg := server.Config{
		Folders: []plugins.Folder{plugins.Dir(l.zoo)}, CacheDir: plugintest.CacheDir(), DataDir: filepath.Join(l.t.TempDir(), "runs"),
		Grants: map[string]plugins.Grant{loadEcho: {Clock: true}},
	}
	s, err := server.Open(l.t.Context(), cfg)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = s.Close(context.Background()) })
	return door{"in process", func(ctx context.Context) error {
		r, err := s.Call(ctx, server.Request{Session: "compared", Tool: loadEcho, Args: json.RawMessage(comparedArgs)})
		if err != nil {
			return err
		}
		return expect(r.Kind == abi.Success && sameJSON(r.Value, comparedArgs), "%s %s", r.Kind, r.Error)
	}}
}

// overHTTP calls a server, each caller over a connection of its own that is
// kept.
func (l *load) overHTTP(ctx context.Context, name, network, address string) door {
	base := address
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	if network == "unix" {
		base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}
	}
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	body, err := json.Marshal(wire.Call{Tool: loadEcho, Args: json.RawMessage(comparedArgs)})
	require.NoError(l.t, err)
	return door{"over " + name, func(ctx context.Context) error {
		answer, err := post(ctx, client, base, body)
		if err != nil {
			return err
		}
		var r abi.Result
		if err := json.Unmarshal(answer, &r); err != nil {
			return err
		}
		return expect(r.Kind == abi.Success && sameJSON(r.Value, comparedArgs), "%s", answer)
	}}
}

func post(ctx context.Context, client *http.Client, base string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/calls", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(wire.SessionHeader, "compared")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// bare calls a server that only reads the request and writes what the other one
// answers.
func (l *load) bare(ctx context.Context) door {
	return l.overHTTP(ctx, "bare HTTP", "tcp", l.bareServer(loadEcho, comparedArgs))
}

// bareServer starts a server that answers every request as the other one answers
// a call with these arguments.
func (l *load) bareServer(tool, args string) (base string) {
	a, err := l.asker.send(l.t.Context(), "POST", "/v1/calls", wire.Call{Tool: tool, Args: json.RawMessage(args)})
	require.NoError(l.t, err)
	var r abi.Result
	require.NoError(l.t, json.Unmarshal(a.body, &r))
	require.True(l.t, r.Kind == abi.Success && sameJSON(r.Value, args), "%s", excerptOf(a.body))

	file := filepath.Join(l.t.TempDir(), "answer.json")
	require.NoError(l.t, os.WriteFile(file, a.body, 0o600))
	return startProcess(l.t, "bare", file).base
}

// sizes compares a call over HTTP with a bare server that reads and writes the
// same bytes, for small and for large arguments. The tool answers with its
// arguments, so that both directions are as large. The client looks at no more
// than the length of what it reads.
func (l *load) sizes() {
	if !l.whole {
		return
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	for _, size := range []struct {
		name, tool string
		bytes      int
	}{{"16 B", loadEcho, 16}, {"1 MiB", loadLarge, 1 << 20}} {
		const around = len(`{"text":""}`)
		args := `{"text":"` + strings.Repeat("x", size.bytes-around) + `"}`
		doors := []door{l.raw(ctx, l.server.base, size.tool, args), l.raw(ctx, l.bareServer(size.tool, args), size.tool, args)}

		profiled := l.profileSize(size.name)
		took := make([][]time.Duration, len(doors))
		for began := time.Now(); took[0] == nil || time.Since(began) < l.duration/6; {
			for i, d := range doors {
				took[i] = append(took[i], l.callers(1, d)...)
			}
		}
		profiled.Wait()
		call, bare := quantile(took[0], 0.5), quantile(took[1], 0.5)
		l.figures.add("call over HTTP, arguments of "+size.name+", p50", ms(call), "ms")
		l.figures.add("bare HTTP, the same bytes, "+size.name+", p50", ms(bare), "ms")
		l.figures.add("call over HTTP, arguments of "+size.name+", p50, over bare HTTP", float64(call)/float64(bare), "times")
	}
}

// profileSize profiles the server meanwhile, if the environment asks for that.
func (l *load) profileSize(name string) *sync.WaitGroup {
	var profiling sync.WaitGroup
	if loadProfile != "" {
		profiling.Go(func() {
			data := l.server.profile(fmt.Sprintf("profile?seconds=%d", max(1, int(l.duration.Seconds()/6))))
			if err := os.WriteFile(loadProfile+"."+strings.ReplaceAll(name, " ", ""), []byte(data), 0o644); err != nil {
				l.t.Error(err)
			}
		})
	}
	return &profiling
}

// raw calls a server over a connection that is kept.
func (l *load) raw(ctx context.Context, base, tool, args string) door {
	transport := &http.Transport{DisableCompression: true}
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	body, err := json.Marshal(wire.Call{Tool: tool, Args: json.RawMessage(args)})
	require.NoError(l.t, err)
	return door{"of " + base, func(ctx context.Context) error {
		answer, err := post(ctx, client, base, body)
		if err != nil {
			return err
		}
		return expect(len(answer) > len(args), "%.200s", answer)
	}}
}
