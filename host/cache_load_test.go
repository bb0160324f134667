package host_test

import (
	"context"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// TestLoad: a module is loaded from its compiled code alone, as long as the host has that.
func TestLoad(t *testing.T) {
	h := cachedHost(t, t.TempDir(), 0)
	m := compile(t, h, echo.wasm())
	code := m.Code()
	require.NoError(t, m.Close(context.Background()))

	again, err := h.Load(t.Context(), code)
	require.NoError(t, err)
	o := do(context.Background(), h, again, host.Call{Args: []byte(`{"a":1}`)})
	require.NoError(t, o.err)
	require.Equal(t, `{"a":1}`, string(o.Value))
	require.Equal(t, m.Info.Digest, again.Info.Digest)
	require.Equal(t, code, again.Code())

	_, err = cachedHost(t, t.TempDir(), 0).Load(t.Context(), code)
	require.ErrorIs(t, err, fs.ErrNotExist, "another host")
	uncached := hostWith(t, host.Config{})
	require.Zero(t, compile(t, uncached, echo.wasm()).Code())
	_, err = uncached.Load(t.Context(), host.Code{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}
