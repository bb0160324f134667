package sqlite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

// crashValues are the key-value store that hosts of the harness write to.
func crashValues(e engine.Engine) background.Values {
	return background.ValuesIn(e, engine.Scope{Name: "kv:crash"}, engine.ValueLimit{}, 256<<10)
}

// counted is a value of the harness: how often it was written, and as many bytes as
// follow from that.
type counted struct {
	N    int
	Fill string
}

func newCounted(n int) counted { return counted{n, strings.Repeat("x", n*7919%(64<<10))} }

// count adds one to a value, as a plugin does: it compares versions.
func (h *crashHost) count() {
	key := fmt.Sprint("key-", h.random.IntN(4))
	values := crashValues(h.store)
	old, err := values.Get(h.t.Context(), key)
	var c counted
	if err == nil {
		require.NoError(h.t, json.Unmarshal(old.Data, &c))
	} else {
		require.True(h.t, errors.Is(err, engine.ErrNotFound), err)
	}

	data, err := json.Marshal(newCounted(c.N + 1))
	require.NoError(h.t, err)
	_, err = values.Set(h.t.Context(), key, data, old.Version)
	require.NoError(h.t, err)
	h.say("counted", key, c.N+1)
}

// values: each write that was acknowledged counts once, and each value is whole. A kill
// may come between a write and its acknowledgment.
func (h *harness) values(store *sqlite.Engine, kills int) {
	acknowledged, last := map[string]int{}, map[string]int{}
	for _, line := range h.said["counted"] {
		var key string
		var n int
		_, err := fmt.Sscan(line, &key, &n)
		require.NoError(h.t, err)
		acknowledged[key]++
		require.Greater(h.t, n, last[key], "%s went back", key)
		last[key] = n
	}
	all, unsaid := 0, 0
	for key, n := range last {
		v, err := crashValues(store).Get(context.Background(), key)
		require.NoError(h.t, err, "%s is lost", key)
		var c counted
		require.NoError(h.t, json.Unmarshal(v.Data, &c))
		require.Equal(h.t, newCounted(c.N), c, "%s is not whole", key)
		require.GreaterOrEqual(h.t, c.N, n, "an acknowledged write of %s is lost", key)
		all += c.N
		unsaid += c.N - acknowledged[key]
	}
	require.LessOrEqual(h.t, unsaid, kills, "a write counted twice")
	h.t.Logf("%5d writes of values, %d of them not acknowledged", all, unsaid)
}
