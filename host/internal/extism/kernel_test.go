package extism_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host/internal/extism"
)

func newKernel(limit uint64) *extism.Kernel {
	k := &extism.Kernel{}
	k.Reset(extism.Config{Limit: limit, Pay: func(uint64) error { return nil }})
	return k
}

func put(t *testing.T, k *extism.Kernel, text string) uint64 {
	t.Helper()
	handle, err := k.Put([]byte(text))
	require.NoError(t, err)
	return handle
}

func TestBlocks(t *testing.T) {
	k := newKernel(1 << 20)
	a, b := put(t, k, "first"), put(t, k, "second block")
	require.Equal(t, "first", string(k.Block(a)))
	require.Equal(t, "second block", string(k.Block(b)))
	require.Equal(t, uint64(5), k.Length(a))
	require.Zero(t, k.Length(a+1), "no block begins there")
	require.Zero(t, put(t, k, ""))

	k.Free(b)
	k.Free(b)
	k.Free(b + 1)
	require.Nil(t, k.Block(b))
	again := put(t, k, "third")
	require.Equal(t, b, again, "a free block is used again")
	require.NotEqual(t, again, put(t, k, "another"), "only once")
	require.Equal(t, "first", string(k.Block(a)))
	require.Equal(t, uint64(5), k.Length(again))
}

func TestStoringStaysWithinABlock(t *testing.T) {
	k := newKernel(1 << 20)
	a, b := put(t, k, "123456789"), put(t, k, "b")
	copy(k.Range(a+8, 8), "12345678")
	require.Equal(t, "b", string(k.Block(b)))
}

func TestRoom(t *testing.T) {
	k := newKernel(1000)
	_, err := k.Alloc(1000)
	require.ErrorIs(t, err, extism.ErrFull)
	for _, n := range []uint64{1001, 1 << 32, 1<<64 - 1} {
		_, err := k.Alloc(n)
		require.ErrorIs(t, err, extism.ErrFull)
	}

	n := 0
	for ; err == nil || n == 0; n++ {
		_, err = k.Alloc(1)
	}
	require.ErrorIs(t, err, extism.ErrFull)
	require.Less(t, n, 30)
	require.LessOrEqual(t, k.Size(), uint64(1000))

	full := errors.New("the host is full")
	k.Reset(extism.Config{Limit: 1 << 20, Pay: func(bytes uint64) error {
		if bytes > 8<<10 {
			return full
		}
		return nil
	}})
	_, err = k.Alloc(1 << 10)
	require.NoError(t, err)
	_, err = k.Alloc(1 << 19)
	require.ErrorIs(t, err, full)
	require.Less(t, k.Size(), uint64(8<<10))
}

func TestResetForgets(t *testing.T) {
	for _, size := range []int{100, 1 << 20} {
		k := newKernel(4 << 20)
		secret := make([]byte, size)
		for i := range secret {
			secret[i] = 's'
		}
		handle := put(t, k, string(secret))
		require.NoError(t, k.SetInput(secret))
		require.True(t, k.SetOutput(handle, 10))
		k.SetError(handle)

		k.Reset(extism.Config{Limit: 4 << 20, Pay: func(uint64) error { return nil }})
		require.Zero(t, k.Size())
		require.Nil(t, k.Block(handle))
		require.Empty(t, k.Output())
		require.Empty(t, k.Error())
		_, length := k.Input()
		require.Zero(t, length)
		again, err := k.Alloc(uint64(size))
		require.NoError(t, err)
		require.Equal(t, make([]byte, size), k.Block(again))
	}
}

// FuzzKernel holds the kernel against one that keeps each block for itself.
func FuzzKernel(f *testing.F) {
	f.Add([]byte{0, 10, 1, 0, 0, 3, 2, 0, 3, 70, 4, 70, 0, 200, 1, 1, 5, 64, 6, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		const limit = 4 << 10
		k := newKernel(limit)
		blocks := map[uint64][]byte{} // what each should have
		var handles []uint64
		for ; len(steps) >= 2; steps = steps[2:] {
			x := uint64(steps[1])
			switch steps[0] % 7 {
			case 0:
				handle, err := k.Alloc(x * x)
				if err != nil || handle == 0 {
					require.True(t, x == 0 || errors.Is(err, extism.ErrFull))
					continue
				}
				require.Empty(t, blocks[handle], "the block is taken")
				for at := range x * x {
					k.Range(handle+at, 1)[0] = byte(at + x)
				}
				blocks[handle] = append([]byte(nil), k.Block(handle)...)
				require.Len(t, blocks[handle], int(x*x))
				handles = append(handles, handle)
			case 1:
				if len(handles) > 0 {
					handle := handles[int(x)%len(handles)]
					k.Free(handle)
					delete(blocks, handle)
				}
			case 2:
				k.Free(x)
				delete(blocks, x)
			case 3:
				one := k.Range(x*33, 1) != nil
				eight := k.Range(x*33, 8) != nil
				require.True(t, one || !eight)
			case 4:
				require.Nil(t, k.Range(x-256, 8), "before the memory, or beyond it")
			case 5:
				if k.SetOutput(x*33, x*7) {
					require.Len(t, k.Output(), int(x*7))
				}
			case 6:
				k.SetError(x * 8)
				require.Equal(t, len(blocks[x*8]), len(k.Error()))
			}

			require.LessOrEqual(t, k.Size(), uint64(limit))
			for handle, want := range blocks {
				require.Equal(t, want, k.Block(handle))
			}
		}
	})
}
