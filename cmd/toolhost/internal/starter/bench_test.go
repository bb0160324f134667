package starter_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/cmd/toolhost/internal/starter"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

// BenchmarkOpen measures what the pack adds to the start of a server.
func BenchmarkOpen(b *testing.B) {
	h, err := host.New(b.Context(), host.Config{CacheDir: plugintest.CacheDir()})
	require.NoError(b, err)
	defer h.Close(context.Background())
	cfg := plugins.Config{Folders: []plugins.Folder{{Path: "starter", FS: starter.FS(starter.Names()), Pack: true}}, CacheDir: plugintest.CacheDir()}
	for b.Loop() {
		r, err := plugins.Open(b.Context(), h, cfg)
		require.NoError(b, err)
		require.NoError(b, r.Close(b.Context()))
	}
}

// BenchmarkCall measures clean calls, web_fetch with a server and a proxy in this process.
func BenchmarkCall(b *testing.B) {
	work := b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(work, "a.txt"), []byte("one\ntwo\n"), 0o600))
	egress := internet(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>a") })
	h, err := host.New(b.Context(), host.Config{CacheDir: plugintest.CacheDir(), Egress: egress})
	require.NoError(b, err)
	defer h.Close(context.Background())

	grant := host.Grant{Files: []host.Mount{{Dir: work, Path: "/work"}}, HTTP: []host.HTTPRule{{URL: "https://*/*"}}}
	for _, c := range []struct {
		plugin, tool, args string
		grant              host.Grant
	}{
		{"math", "add", `{"a":1,"b":2}`, host.Grant{}},
		{"files", "stat_file", `{"path":"a.txt"}`, grant},
		{"files", "read_file", `{"path":"a.txt"}`, grant},
		{"web", "web_fetch", `{"url":"https://page.example.com/"}`, host.Grant{HTTP: grant.HTTP}},
	} {
		b.Run(c.tool, func(b *testing.B) {
			wasm, err := starter.Plugin(c.plugin)
			require.NoError(b, err)
			m, err := h.Compile(b.Context(), wasm)
			require.NoError(b, err)
			call := host.Call{Tool: c.tool, Args: []byte(c.args), Policy: host.Policy{Grant: c.grant}}
			var used abi.Usage
			var times []time.Duration
			for b.Loop() {
				began := time.Now()
				r, err := h.Call(b.Context(), m, call)
				times = append(times, time.Since(began))
				require.NoError(b, err)
				require.Equal(b, abi.Success, r.Kind, r.Error)
				used = r.Usage
			}
			slices.Sort(times)
			b.ReportMetric(0, "ns/op") // of which a name server that does not answer can be most
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(used.Fuel-used.StartupFuel), "fuel/op")
			b.ReportMetric(float64(m.Stats().Restored)/float64(b.N), "instances/op")
		})
	}
}
