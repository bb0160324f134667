package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// BenchmarkCall compares a call over HTTP with a bare net/http server that reads
// and writes the same bytes, and with the same call of the service without HTTP, in
// turns: the median of each, and the ratio of the first two.
func BenchmarkCall(b *testing.B) {
	small := plugintest.Plugin{Manifest: plugintest.Manifest("small"), Invoke: plugintest.Do().Echo()}
	large := plugintest.Plugin{Manifest: plugintest.Manifest("large"), Invoke: plugintest.Do().EchoLarge()}
	service, err := server.Open(b.Context(), server.Config{
		Folders:  []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{"small.wasm": {Data: small.Wasm()}, "large.wasm": {Data: large.Wasm()}}}},
		CacheDir: plugintest.CacheDir(),
	})
	require.NoError(b, err)
	defer service.Close(b.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	api := httpapi.New(service, httpapi.Config{})
	go func() { _ = api.Serve(l) }()
	defer api.Shutdown(b.Context())

	for tool, size := range map[string]int{"small": 16, "large": 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			args := `{"x":"` + strings.Repeat("x", size-8) + `"}`
			body := []byte(`{"tool":"` + tool + `","args":` + args + `}`)
			answer := post(b, "http://"+l.Addr().String()+"/v1/calls", body)
			bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(answer)
			}))
			defer bare.Close()

			var calls, bares, alone []time.Duration
			for b.Loop() {
				began := time.Now()
				post(b, "http://"+l.Addr().String()+"/v1/calls", body)
				calls = append(calls, time.Since(began))
				began = time.Now()
				post(b, bare.URL, body)
				bares = append(bares, time.Since(began))
				began = time.Now()
				_, err := service.Call(b.Context(), server.Request{Tool: tool, Args: []byte(args)})
				alone = append(alone, time.Since(began))
				require.NoError(b, err)
			}
			call, base := median(calls), median(bares)
			b.ReportMetric(float64(call.Microseconds()), "call-us")
			b.ReportMetric(float64(base.Microseconds()), "bare-us")
			b.ReportMetric(float64(median(alone).Microseconds()), "service-us")
			b.ReportMetric(float64(call)/float64(base), "ratio")
			b.ReportMetric(0, "ns/op") // of both together
		})
	}
}

// BenchmarkLiveOutput is a client that reads the output of a running run as events: how
// fast, what server and client allocate for it together, and the time beside that of a bare
// net/http server that writes the same output in pieces of 32 KiB.
func BenchmarkLiveOutput(b *testing.B) {
	line := []byte(strings.Repeat("compiling <a> & \"b\"… ", 4) + "\n")
	size, written := 512<<10/len(line)*len(line), make(chan struct{})
	service, err := server.Open(b.Context(), server.Config{
		Tools: []gotool.Tool{{Name: "talk", Description: "Talks.", Hints: abi.Hints{SupportsBackground: true, Readonly: true}, Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ struct{}) (string, error) {
			_, err := c.Output().Write(bytes.Repeat(line, size/len(line)))
			close(written)
			<-ctx.Done()
			return "", err
		})}},
		Runs: server.RunsConfig{OutputCap: 1 << 20},
	})
	require.NoError(b, err)
	defer service.Close(b.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	api := httpapi.New(service, httpapi.Config{})
	go func() { _ = api.Serve(l) }()
	defer api.Shutdown(b.Context())
	c, err := client.New(l.Addr().String(), client.Options{})
	require.NoError(b, err)
	run, err := c.Spawn(b.Context(), wire.Spawn{Tool: "talk"}, "")
	require.NoError(b, err)
	defer c.Stop(b.Context(), run.TaskID, wire.Stop{Force: true})
	<-written

	output := bytes.Repeat(line, size/len(line))
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for piece := range slices.Chunk(output, 32<<10) {
			_, _ = w.Write(piece)
		}
	}))
	defer bare.Close()

	b.SetBytes(int64(size))
	b.ReportAllocs()
	var ours, theirs time.Duration
	for b.Loop() {
		began := time.Now()
		ctx, leave := context.WithCancel(b.Context())
		got := 0
		_, _ = c.Follow(ctx, run.TaskID, client.Follower{Output: func(out wire.Output) {
			if got += len(out.Text); got == size {
				leave()
			}
		}})
		require.Equal(b, size, got)
		ours += time.Since(began)

		b.StopTimer()
		began = time.Now()
		resp, err := http.Get(bare.URL)
		require.NoError(b, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		_ = resp.Body.Close()
		theirs += time.Since(began)
		b.StartTimer()
	}
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
}

func post(b *testing.B, url string, body []byte) []byte {
	resp, err := http.Post(url, "application/json", bytes.NewReader(body))
	require.NoError(b, err)
	answer := make([]byte, 0, len(body)+1024)
	buffer := bytes.NewBuffer(answer)
	_, err = buffer.ReadFrom(resp.Body)
	require.NoError(b, err)
	_ = resp.Body.Close()
	require.Equal(b, http.StatusOK, resp.StatusCode)
	return buffer.Bytes()
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
