package server

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// BenchmarkApprovals measures 2,000 calls that wait for approval, of 20 sessions: the
// memory of each, the time to list a page and all, and to decide on one, with records in
// memory and on disk; on disk also the time to open the service again.
func BenchmarkApprovals(b *testing.B) {
	const waiting, sessions = 2000, 20
	for _, name := range []string{"memory", "disk"} {
		b.Run(name, func(b *testing.B) {
			var bytes, page, all, decide, reopen float64
			for range b.N {
				cfg := Config{}
				if name == "disk" {
					cfg.DataDir = b.TempDir()
				}
				s := openAsking(b, cfg, "1.0.0")
				before := heapBytes()
				for i := range waiting {
					args := fmt.Appendf(nil, `{"n":%d,"path":"/srv/data/customers/%08d.json"}`, i, i)
					r, err := s.Service.Call(b.Context(), Request{Session: fmt.Sprint("s", i%sessions), Tool: "drop", Args: json.RawMessage(args)})
					require.NoError(b, err)
					require.True(b, r.IsSuccess(), r.Error)
				}
				bytes += float64(heapBytes()-before) / waiting

				if name == "disk" {
					require.NoError(b, s.Close(done()))
					began := time.Now()
					s = openAsking(b, cfg, "1.0.0")
					reopen += time.Since(began).Seconds() * 1000
				}
				p := s.Approvals()
				began := time.Now()
				first, err := p.List(b.Context(), "", 100)
				require.NoError(b, err)
				page += time.Since(began).Seconds() * 1000
				require.Equal(b, waiting, first.Waiting)
				began = time.Now()
				whole, err := p.List(b.Context(), "", 0)
				require.NoError(b, err)
				all += time.Since(began).Seconds() * 1000
				require.Len(b, whole.Approvals, waiting)

				began = time.Now()
				for _, w := range first.Approvals {
					_, err := p.Decide(b.Context(), w.TaskID, "operator", wire.Decide{Fingerprint: w.Fingerprint})
					require.NoError(b, err)
				}
				decide += time.Since(began).Seconds() * 1e6 / float64(len(first.Approvals))
				require.NoError(b, s.Close(done()))
			}
			n := float64(b.N)
			b.ReportMetric(bytes/n, "B/waiting")
			b.ReportMetric(page/n, "ms/page")
			b.ReportMetric(all/n, "ms/list")
			b.ReportMetric(decide/n, "µs/decision")
			if name == "disk" {
				b.ReportMetric(reopen/n, "ms/open")
			}
		})
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
