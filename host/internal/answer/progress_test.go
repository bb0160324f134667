package answer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCounts: a count is written as people read it.
func TestCounts(t *testing.T) {
	for want, p := range map[string]Progress{
		"1703940 of 30000000 numbers": {Done: 1703940, Total: 3e7, Unit: "numbers"},
		"0 of 100000 files":           {Total: 1e5, Unit: "files"},
		"0.5 of 2.25 GB":              {Done: .5, Total: 2.25, Unit: "GB"},
		"0.333333 of 1 parts":         {Done: 1. / 3, Total: 1, Unit: "parts"},
		"1234568 bytes":               {Done: 1234567.75, Unit: "bytes"},
		"1e+20 atoms":                 {Done: 1e20, Unit: "atoms"},
	} {
		require.Equal(t, want, p.String())
	}
}
