package human_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/human"
)

func TestBytes(t *testing.T) {
	for n, text := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 64 << 20: "64.0 MiB", 3 << 30: "3.0 GiB"} {
		require.Equal(t, text, human.Bytes(n))
	}
}
