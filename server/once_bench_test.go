package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// What it costs that a call acts once: nothing for a tool that is readonly, the table of
// repeats for one that is not, and two writes of the engine with a key.
func BenchmarkActOnce(b *testing.B) {
	for _, bench := range []struct {
		name, tool string
		key        bool
		dir        bool
	}{{"readonly", "echo", false, false}, {"acting", "plain", false, false}, {"key, in memory", "plain", true, false}, {"key, on disk", "plain", true, true}} {
		b.Run(bench.name, func(b *testing.B) {
			cfg := Config{}
			if bench.dir {
				cfg.DataDir = b.TempDir()
			}
			s := open(b, cfg, "echo", "plain")
			req := Request{Session: alice, Tool: bench.tool, Args: []byte(`{"n":1}`)}
			i := 0
			for b.Loop() {
				var settle func(bool)
				req.Receipt = func(f func(bool)) { settle = f }
				if bench.key {
					i++
					req.Key = fmt.Sprint(i)
				}
				r, err := s.Call(b.Context(), req)
				require.NoError(b, err)
				require.True(b, r.IsSuccess(), r.Error)
				if settle != nil {
					settle(true)
				}
			}
		})
	}
}
