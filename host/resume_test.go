package host_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// TestContinueStartedDifferently: a call continues with the memory that its plugin has
// started with, also where it starts with another one.
func TestContinueStartedDifferently(t *testing.T) {
	reads := waiter(2, sleeping(1000), sleeping(5000))
	reads.initialize = drop(wasi(fnEnv, 512, 516))
	reads.resume = seq(tell(load(i32(512))), reads.resume)

	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, reads.wasm())
		images := map[string][]byte{}
		var state []byte
		keep := func(k host.SavedState) error {
			state, images[k.Image.Digest] = k.State, k.Image.Encode()
			return nil
		}
		missing := errors.New("it is gone")
		stored := func(digest string) ([]byte, error) {
			if data, ok := images[digest]; ok {
				return data, nil
			}
			return nil, missing
		}
		suspended := func(env ...string) host.Call {
			call := host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true, Env: map[string]string{}}}, Continue: state}
			for _, name := range env {
				call.Policy.Env[name] = "x"
			}
			call.Suspend = &keeper{after: 100 * time.Millisecond, keep: keep, image: stored}
			return call
		}
		require.ErrorIs(t, do(t.Context(), h, m, suspended("A")).err, host.ErrSuspended)
		require.Len(t, images, 1)
		time.Sleep(time.Second)

		for _, c := range []struct {
			name   string
			change func(data []byte) []byte
			text   string
		}{
			{"cut", func(data []byte) []byte { return data[:len(data)-1] }, "damaged"},
			{"changed", func(data []byte) []byte { data[len(data)/2] ^= 4; return data }, "damaged"},
			{"a checkpoint", func([]byte) []byte { return state }, "damaged"},
			{"empty", func([]byte) []byte { return nil }, "damaged"},
		} {
			call := suspended("A", "B")
			call.Suspend = &keeper{image: func(digest string) ([]byte, error) {
				data, err := stored(digest)
				return c.change(bytes.Clone(data)), err
			}}
			o := do(t.Context(), h, m, call)
			require.ErrorIs(t, o.err, host.ErrState, c.name)
			require.ErrorContains(t, o.err, c.text, c.name)
		}
		call := suspended("A", "B")
		call.Suspend = &keeper{}
		require.ErrorContains(t, do(t.Context(), h, m, call).err, "the plugin starts up differently here, and how it did is not kept")
		call.Suspend = nil
		require.ErrorContains(t, do(t.Context(), h, m, call).err, "the plugin starts up differently here")

		o := do(t.Context(), h, m, suspended("A", "B"))
		require.ErrorIs(t, o.err, host.ErrSuspended, "the first has ended, and it waits for the second")
		require.Len(t, images, 2)
		time.Sleep(5 * time.Second)
		last := do(t.Context(), h, m, suspended("A", "B", "C"))
		require.NoError(t, last.err)
		require.Equal(t, []int32{1, 1, 2}, o.codes(), "what it has read when it started: one variable")
		require.Equal(t, []int32{1, 2, 2}, last.codes())
	})
}
