package background

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func TestValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		v := m.Values(alice)
		first, err := v.Set(t.Context(), "draft", json.RawMessage(`{"step":1}`), 0)
		require.NoError(t, err)
		_, err = v.Set(t.Context(), "draft", json.RawMessage(`{"step":2}`), 0)
		require.ErrorIs(t, err, engine.ErrConflict)
		must(v.Set(t.Context(), "draft", json.RawMessage(`{"step":2}`), first.Version))
		require.JSONEq(t, `{"step":2}`, string(must(v.Get(t.Context(), "draft")).Data))
		_, err = m.Values(bob).Get(t.Context(), "draft")
		require.ErrorIs(t, err, engine.ErrNotFound, "another session")

		must(v.Set(t.Context(), "a", json.RawMessage(`1`), engine.AnyVersion))
		require.Len(t, must(v.List(t.Context())), 2)
		require.True(t, must(v.Delete(t.Context(), "a", engine.AnyVersion)))
		require.False(t, must(v.Delete(t.Context(), "a", engine.AnyVersion)))

		for _, key := range []string{"", "a/b", ".", "..", "a b", "ä", "a\n", strings.Repeat("a", 129)} {
			_, err := v.Set(t.Context(), key, json.RawMessage(`1`), engine.AnyVersion)
			require.ErrorIs(t, err, ErrInvalid, key)
		}
		for _, data := range []string{"", "{", `"` + strings.Repeat("x", MaxValue) + `"`} {
			_, err := v.Set(t.Context(), "a", json.RawMessage(data), engine.AnyVersion)
			require.ErrorIs(t, err, ErrInvalid)
		}
	})
}

// TestValuesGo: the values of a session are removed when the session ends, or is no
// longer used.
func TestValuesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{NoticeTTL: time.Hour})
		for _, session := range []string{alice, bob, "carol"} {
			must(m.Values(session).Set(t.Context(), "a", json.RawMessage(`1`), 0))
		}
		require.NoError(t, m.EndSession(t.Context(), alice))
		require.Empty(t, must(m.Values(alice).List(t.Context())))
		require.NotEmpty(t, must(m.Values(bob).List(t.Context())))

		time.Sleep(50 * time.Minute)
		must(m.Values(bob).Set(t.Context(), "b", json.RawMessage(`1`), 0))
		time.Sleep(50 * time.Minute)
		require.Len(t, must(m.Values(bob).List(t.Context())), 2)
		require.Empty(t, must(m.Values("carol").List(t.Context())))
	})
}
