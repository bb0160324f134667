package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShareOfAClient is what the documents promise: three quarters of the slots,
// rounded down, and at least one.
func TestShareOfAClient(t *testing.T) {
	slots := func(q waitQueue) (n int) {
		for q.TryAcquire("client") {
			n++
		}
		return n
	}
	for max, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3, 64: 48, 256: 192} {
		q := newWaitQueue(max, true, " of one plugin", " here")
		require.Equal(t, want, slots(q), "of %d", max)
		require.Contains(t, q.fullForClient, fmt.Sprintf("at most %d calls of one plugin", want))
		require.Equal(t, max, slots(newWaitQueue(max, false, "", "")))
	}
}
