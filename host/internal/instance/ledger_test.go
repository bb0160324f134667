package instance

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestLedger: what one module takes another cannot have, by kind, until it is given
// back.
func TestLedger(t *testing.T) {
	l := NewLedger(Config{Memory: 100})
	defer l.Close()
	a, b := l.Account(0), l.Account(0)
	require.NoError(t, a.Take(Stacks, 60))
	require.NoError(t, b.Take(Buffers, 40))
	err := b.Take(Linear, 1)
	require.ErrorIs(t, err, ErrHostMemory)
	require.ErrorIs(t, err, ErrMemory)
	require.ErrorContains(t, err, "all calls may hold 100 bytes together, and 1 more are needed")

	a.Give(Stacks, 60)
	require.NoError(t, b.Take(Linear, 1))
	require.Equal(t, Figures{Held: [kinds]int64{Linear: 1, Buffers: 40}, Peak: 41}, b.Figures())
	f := l.Figures()
	require.EqualValues(t, 41, f.Total())
	require.EqualValues(t, 100, f.Peak)
}

// TestClient: the calls of a client have three quarters, across modules, and the ledger
// forgets a client that has and holds nothing.
func TestClient(t *testing.T) {
	l := NewLedger(Config{Memory: 100, Shared: true})
	defer l.Close()
	a, b := l.Account(0), l.Account(0)
	ana, bo := l.Client("ana"), l.Client("bo")
	require.NoError(t, a.Payer(ana).Take(Linear, 50))
	require.False(t, a.Payer(ana).Short())
	require.NoError(t, b.Payer(l.Client("ana")).Take(Buffers, 25))
	require.True(t, a.Payer(ana).Short(), "her waiting calls give way to others of hers")
	require.False(t, a.Payer(bo).Short())
	require.ErrorContains(t, a.Payer(ana).Take(Stacks, 1), "one client may hold 75 bytes together, and 1 more are needed")
	require.NoError(t, a.Payer(bo).Take(Linear, 25))
	require.ErrorContains(t, a.Payer(bo).Take(Linear, 1), "all calls may hold 100 bytes together")

	b.Payer(ana).Give(Buffers, 25)
	require.NoError(t, a.Take(Images, 25), "nobody's")
	ana.Leave()
	ana.Leave()
	bo.Leave()
	require.Len(t, l.clients, 2)
	a.Payer(ana).Give(Linear, 50)
	a.Payer(bo).Give(Linear, 25)
	require.Empty(t, l.clients)
	require.Equal(t, int64(25), l.figures.Total())
}

// TestTakeAwaitsFrees: memory that is on its way back is waited for.
func TestTakeAwaitsFrees(t *testing.T) {
	l := NewLedger(Config{Memory: 100})
	defer l.Close()
	a := l.Account(0)
	require.NoError(t, a.Take(Linear, 100))
	l.freeLater(func() {
		time.Sleep(10 * time.Millisecond)
		a.Give(Linear, 100)
	})
	require.NoError(t, a.Take(Linear, 100))
}

// TestPagemap: what the system tells about memory is believed only if it is true.
func TestPagemap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has one")
	}
	tells := func(path string) bool {
		l := NewLedger(Config{Pagemap: path})
		defer l.Close()
		return l.pagemap.file != nil
	}
	require.True(t, tells(""))
	require.False(t, tells("/dev/zero"))
}

// TestWritten: what a memory has that its image has not is in the pages that were written
// to, in a new memory, one that has grown, and one that serves again.
func TestWritten(t *testing.T) {
	const page = wasmbin.PageSize
	a := NewLedger(Config{Memory: 1 << 30}).Account(0)
	data := bytes.Repeat([]byte{3}, 4*page)
	i, err := a.NewImage(data, 2*page, 8*page)
	require.NoError(t, err)
	m, err := a.Payer(nil).NewMemory(i, 64*page, 64*page)
	require.NoError(t, err)
	m.Reallocate(0)

	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		for range r.IntN(20) {
			m.room[r.IntN(int(m.size))] = byte(r.IntN(5))
		}
		m.Reallocate(m.size + page)
		m.room[m.size-1] = 9
		for range r.IntN(20) {
			m.room[r.IntN(int(m.size))] = byte(r.IntN(5))
		}

		var all, some checkpoint.Checkpoint
		all.Compare(m.room[:m.size], i.bytes, i.at, nil)
		some.Compare(m.room[:m.size], i.bytes, i.at, m.written())
		require.Equal(t, all, some)
		require.Positive(t, all.Changed())
		require.True(t, m.reset())
		m.Reallocate(0)
	}
	m.Release()
	i.Close()
}
