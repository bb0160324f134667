package server_test

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// BenchmarkParkable compares a small call that may be parked, and ends at once, with the
// same call without a session, which is never parked, in turns: the time of each, and the
// ratio.
func BenchmarkParkable(b *testing.B) {
	small := plugintest.Plugin{Manifest: plugintest.Manifest("small"), Invoke: plugintest.Do().Echo()}
	service, err := server.Open(b.Context(), server.Config{
		Folders:  []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{"small.wasm": {Data: small.Wasm()}}}},
		CacheDir: plugintest.CacheDir(),
	})
	require.NoError(b, err)
	defer service.Close(b.Context())

	call := func(session string) time.Duration {
		began := time.Now()
		_, err := service.Call(b.Context(), server.Request{Session: session, Tool: "small", Args: []byte(`{"x":"xxxxxxxx"}`)})
		require.NoError(b, err)
		return time.Since(began)
	}

	var parkable, direct time.Duration
	for b.Loop() {
		parkable += call("ana")
		direct += call("")
	}
	b.ReportMetric(float64(parkable.Nanoseconds())/float64(b.N)/1000, "parkable-us")
	b.ReportMetric(float64(direct.Nanoseconds())/float64(b.N)/1000, "direct-us")
	b.ReportMetric(float64(parkable)/float64(direct), "ratio")
	b.ReportMetric(0, "ns/op") // of both together
}
