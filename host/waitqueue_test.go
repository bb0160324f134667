package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWaitQueue(t *testing.T) {
	for max, each := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3, 64: 48, 256: 192} {
		q := newWaitQueue(max, true, " of one plugin", " here")
		require.Equal(t, each, q.Each())
		require.Contains(t, q.fullForClient, fmt.Sprintf("at most %d calls of one plugin", each))
		require.Equal(t, max, newWaitQueue(max, false, "", "").Each())
	}
}
