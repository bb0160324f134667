package instance

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestImage: an image that is laid into an empty memory, mapped or not, is the
// memory it was made of, and so is each part of it that is restored over
// anything else.
func TestImage(t *testing.T) {
	const page = wasmbin.PageSize
	a := NewLedger(Config{Memory: 1 << 30}).Account(0)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		memory := make([]byte, page*r.IntN(8))
		if n := len(memory); n > 0 {
			from := r.IntN(n)
			for i := range memory[from : from+r.IntN(n-from)] {
				memory[from+i] = byte(r.IntN(3))
			}
		}
		data, at := trim(memory)
		if len(data) > 0 {
			require.NotZero(t, data[0])
			require.NotZero(t, data[len(data)-1])
		}
		i, err := a.NewImage(data, at, uint64(len(memory)))
		require.NoError(t, err)
		require.Equal(t, int64(len(i.bytes)), a.figures.Total())

		m, err := a.Payer(nil).NewMemory(i, 8*page, 8*page)
		require.NoError(t, err)
		require.Equal(t, memory, m.Reallocate(0))
		for range 10 {
			from := r.IntN(len(memory) + 1)
			part := m.room[from : from+r.IntN(len(memory)-from+1)]
			for j := range part {
				part[j] = 7
			}
			i.restore(part, uint64(from))
			require.Equal(t, memory, m.room[:len(memory)])
		}
		m.Release()
		i.Close()
		require.Zero(t, a.figures.Total())
	}
}
