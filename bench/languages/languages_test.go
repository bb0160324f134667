package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	projects := []*project{
		{language: languages[0], missing: errors.New("no Go")},
		{language: languages[3], commands: 3, first: 17 * time.Second, lines: 11, bytes: 12 << 20, compiled: 3740 * time.Millisecond,
			change: 900 * time.Millisecond, changeOf: 800 * time.Millisecond, serve: 90 * time.Millisecond, serveOf: 80 * time.Millisecond},
	}
	m := measured{
		baseline: []time.Duration{900, 1000, 1100},
		of: []figures{{}, {
			wall: []time.Duration{100_000, 131_000, 9_000_000}, cpu: []time.Duration{129_000}, ratios: []float64{130, 135, 150},
			memory: 12 << 20, fuel: 190_411, startup: 166_315_051,
		}},
	}

	text := table(projects, m)
	require.Contains(t, text, "| Go | Go | not measured: the toolchain is missing | | | | | | |\n")
	require.Contains(t, text, "| Python | nothing | 3 | 17.0 s | 11 | 12.0 MiB | 3.74 s | 900 ms (800 ms) | 90.0 ms (80.0 ms) |\n")
	require.Contains(t, text, "| Python | 131 µs | 9.00 ms | 129 µs | 135 (130 to 150) | 12.0 MiB | 190,411 | 166,315,051 |\n")
	require.Contains(t, text, "| the same in Go, as a function | 1.00 µs | 1.10 µs | | 1 | | | |\n")
}

// TestCount: the baseline does what the tools do.
func TestCount(t *testing.T) {
	out, err := count([]byte(args))
	require.NoError(t, err)
	require.Equal(t, result, string(out))
}
