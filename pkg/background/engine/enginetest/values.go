package enginetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

var ofSession = engine.Scope{Session: "s"}

// set stores a value unconditionally and without limits, and returns its version.
func set(t *testing.T, e *store, at engine.Scope, key, data string) int64 {
	t.Helper()
	v, err := e.PutValue(t.Context(), at, engine.Value{Key: key, Data: []byte(data), Version: engine.AnyVersion}, engine.ValueLimit{})
	require.NoError(t, err)
	return v.Version
}

// keysOf returns the values of a scope on one line.
func keysOf(t *testing.T, e *store, at engine.Scope, after string, max int) string {
	t.Helper()
	found, err := e.Values(t.Context(), at, after, max, true)
	require.NoError(t, err)
	light, err := e.Values(t.Context(), at, after, max, false)
	require.NoError(t, err)
	require.Len(t, light, len(found))

	var text []string
	for i, v := range found {
		require.Nil(t, light[i].Data)
		require.Equal(t, len(v.Data), light[i].Bytes)
		text = append(text, v.Key+"="+string(v.Data))
	}
	return strings.Join(text, " ")
}

func values(t *testing.T, e *store) {
	_, err := e.Value(t.Context(), ofSession, "b")
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.Empty(t, keysOf(t, e, ofSession, "", 0))
	require.NoError(t, e.DropValues(t.Context(), ofSession, ""), "nothing")
	require.ErrorIs(t, e.DeleteValue(t.Context(), ofSession, "b", engine.AnyVersion), engine.ErrNotFound)

	first := set(t, e, ofSession, "b", `1`)
	set(t, e, engine.Scope{Session: "other"}, "b", `"theirs"`)
	set(t, e, engine.Scope{Session: "s", Name: "mine"}, "b", `"its own"`)
	time.Sleep(time.Second)
	second := set(t, e, ofSession, "b", `22`)
	require.Greater(t, second, first)
	set(t, e, ofSession, "a", ``)
	set(t, e, ofSession, "c", `3`)
	set(t, e, ofSession, "B", `4`)

	v, err := e.Value(t.Context(), ofSession, "b")
	require.NoError(t, err)
	require.True(t, v.At.Equal(time.Now()))
	require.Equal(t, engine.Value{Key: "b", Version: second, Data: []byte(`22`), Bytes: 2, At: v.At}, v)
	require.Equal(t, "B=4 a= b=22 c=3", keysOf(t, e, ofSession, "", 0))
	require.Equal(t, "b=22 c=3", keysOf(t, e, ofSession, "a", 0))
	require.Equal(t, "b=22", keysOf(t, e, ofSession, "ab", 1))
	require.Equal(t, `b="its own"`, keysOf(t, e, engine.Scope{Session: "s", Name: "mine"}, "", 0))

	require.NoError(t, e.DeleteValue(t.Context(), ofSession, "c", engine.AnyVersion))
	require.NoError(t, e.DropValues(t.Context(), ofSession, "a"))
	require.Equal(t, "b=22", keysOf(t, e, ofSession, "", 0))
	require.NoError(t, e.DropValues(t.Context(), ofSession, ""))
	require.Empty(t, keysOf(t, e, ofSession, "", 0))
	require.Equal(t, `b="theirs"`, keysOf(t, e, engine.Scope{Session: "other"}, "", 0))
}

func valuesConflict(t *testing.T, e *store) {
	compare := func(version int64) (int64, error) {
		v, err := e.PutValue(t.Context(), ofSession, engine.Value{Key: "a", Data: []byte("1"), Version: version}, engine.ValueLimit{})
		return v.Version, err
	}
	_, err := compare(1)
	require.ErrorIs(t, err, engine.ErrConflict, "there is no value")
	first, err := compare(0)
	require.NoError(t, err)
	_, err = compare(0)
	require.ErrorIs(t, err, engine.ErrConflict, "there is one")
	second, err := compare(first)
	require.NoError(t, err)
	_, err = compare(first)
	require.ErrorIs(t, err, engine.ErrConflict, "it has changed")

	require.ErrorIs(t, e.DeleteValue(t.Context(), ofSession, "a", first), engine.ErrConflict)
	require.NoError(t, e.DeleteValue(t.Context(), ofSession, "a", second))
	third, err := compare(0)
	require.NoError(t, err)
	require.Greater(t, third, second, "a deleted value does not come back with its version")
}

func valuesRace(t *testing.T, e *store) {
	version := set(t, e, ofSession, "a", "1")
	won := race(16, func(i int) error {
		_, err := e.PutValue(t.Context(), ofSession, engine.Value{Key: "a", Data: fmt.Append(nil, i), Version: version}, engine.ValueLimit{})
		return err
	})
	require.Equal(t, 1, won)
}

func valuesAppended(t *testing.T, e *store) {
	won := race(16, func(i int) error {
		_, err := e.PutValue(t.Context(), ofSession, engine.Value{Data: []byte("x")}, engine.ValueLimit{Count: 12})
		return err
	})
	require.Equal(t, 12, won)
	found, err := e.Values(t.Context(), ofSession, "", 0, false)
	require.NoError(t, err)
	for i, v := range found {
		require.Equal(t, engine.VersionKey(v.Version), v.Key)
		require.True(t, i == 0 || v.Version > found[i-1].Version)
	}
}

func valuesLimit(t *testing.T, e *store) {
	store := func(key, data string) error {
		_, err := e.PutValue(t.Context(), ofSession, engine.Value{Key: key, Data: []byte(data), Version: engine.AnyVersion}, engine.ValueLimit{Count: 2, Bytes: 20})
		return err
	}
	require.NoError(t, store("a", "12345"))
	require.NoError(t, store("b", "12345"))
	require.ErrorIs(t, store("c", ""), engine.ErrValueCount)
	require.NoError(t, store("a", "1234567890123"), "exactly 20 bytes")
	require.ErrorIs(t, store("b", "123456"), engine.ErrValueBytes)
	require.NoError(t, store("a", ""))
	require.NoError(t, e.DeleteValue(t.Context(), ofSession, "a", engine.AnyVersion))
	require.NoError(t, store("c", "12345"))
	require.Equal(t, "b=12345 c=12345", keysOf(t, e, ofSession, "", 0))
}

// valuesCounted compares the running count with one from scratch, and lets values
// evict records.
func valuesCounted(t *testing.T, e *store) {
	limit(t, e, 400*kilo, 300*kilo)
	recount := func() int64 {
		before := e.Recorded()
		limit(t, e, 400*kilo, 300*kilo)
		require.Equal(t, before, e.Recorded())
		return before
	}
	at := engine.Scope{Session: "a"}
	set(t, e, at, "key", "12345")
	require.EqualValues(t, 2*engine.ValueOverhead+8, recount())
	set(t, e, at, "key", "1")
	require.EqualValues(t, 2*engine.ValueOverhead+4, recount())
	set(t, e, at, "äöü", "1") // bytes count, not characters
	require.EqualValues(t, 3*engine.ValueOverhead+11, recount())
	require.NoError(t, e.DropValues(t.Context(), at, "key"))
	require.EqualValues(t, 2*engine.ValueOverhead+7, recount())
	require.NoError(t, e.DropValues(t.Context(), at, ""))
	require.Zero(t, recount())

	endBig(t, e, "bg_1", "a", true)
	endBig(t, e, "bg_2", "a", true)
	set(t, e, at, "large", strings.Repeat("x", 150*kilo))
	require.Equal(t, "2", left(t, e), "the oldest run was evicted for it")
	_, err := e.PutValue(t.Context(), at, engine.Value{Key: "huge", Data: make([]byte, 160*kilo)}, engine.ValueLimit{})
	require.ErrorIs(t, err, engine.ErrRecordLimit)
	require.Equal(t, "2", left(t, e))
	recount()
}

func pruneValues(t *testing.T, e *store) {
	set(t, e, engine.Scope{Session: "old"}, "a", "1")
	set(t, e, engine.Scope{Session: "old", Name: "other"}, "a", "1")
	set(t, e, engine.Scope{Session: "used"}, "a", "1")
	time.Sleep(time.Hour)
	set(t, e, engine.Scope{Session: "used"}, "b", "1")

	_, err := e.Prune(t.Context(), engine.Retention{Values: time.Now()})
	require.NoError(t, err)
	require.Empty(t, keysOf(t, e, engine.Scope{Session: "old"}, "", 0))
	require.Equal(t, "a=1", keysOf(t, e, engine.Scope{Session: "old", Name: "other"}, "", 0))
	require.Equal(t, "a=1 b=1", keysOf(t, e, engine.Scope{Session: "used"}, "", 0))
}

// pruneEphemeral: nothing of a session that can never be resumed is kept forever, but an
// active run keeps the session's values.
func pruneEphemeral(t *testing.T, e *store) {
	brief := func(session string) bool { return strings.HasPrefix(session, "~") }
	submit(t, e, "bg_a", "~works")
	run := started(t, e, "bg_a")
	for _, session := range []string{"~over", "~works", "named"} {
		set(t, e, engine.Scope{Session: session}, "a", "1")
		set(t, e, engine.Scope{Session: session, Name: "kv"}, "a", "1")
	}
	set(t, e, engine.Scope{Name: "kv"}, "a", "1")
	left := func() (names []string) {
		found, err := e.Scopes(t.Context(), "", "")
		require.NoError(t, err)
		for _, s := range found {
			names = append(names, s.Session+":"+s.Name)
		}
		return names
	}
	prune := func(since time.Time) {
		_, err := e.Prune(t.Context(), engine.Retention{Values: time.Now().Add(-24 * time.Hour), Ephemeral: brief, EphemeralValues: since, Notices: time.Now().Add(-24 * time.Hour), Before: time.Now().Add(-24 * time.Hour), Keep: 100})
		require.NoError(t, err)
	}

	all := []string{":kv", "named:", "named:kv", "~over:", "~over:kv", "~works:", "~works:kv"}
	time.Sleep(time.Hour)
	prune(time.Now().Add(-2 * time.Hour))
	require.Equal(t, all, left(), "changed since")
	prune(time.Now())
	require.Equal(t, []string{":kv", "named:", "named:kv", "~works:", "~works:kv"}, left())
	complete(t, run, engine.StatusSucceeded)
	prune(time.Now())
	require.Equal(t, []string{":kv", "named:", "named:kv"}, left())
}

// messages are values of an active run, and end with it.
func messages(t *testing.T, e *store) {
	limit(t, e, 400*kilo, 300*kilo)
	at := engine.Scope{Session: "s", Run: "bg_a"}
	send := func(at engine.Scope) error {
		_, err := e.PutValue(t.Context(), at, engine.Value{Data: []byte(`1`)}, engine.ValueLimit{})
		return err
	}
	require.ErrorIs(t, send(at), engine.ErrNotFound)
	submit(t, e, "bg_a", "s")
	require.ErrorIs(t, send(engine.Scope{Session: "other", Run: "bg_a"}), engine.ErrNotFound)
	require.NoError(t, send(at), "it is queued")

	events := e.Watch(t.Context(), "s")
	started(t, e, "bg_a")
	require.NoError(t, send(at))
	require.Equal(t, engine.EventStarted, (<-events).Kind)
	event := <-events
	require.Equal(t, engine.EventMessage, event.Kind)
	require.Equal(t, "bg_a", event.Run.ID)
	require.Empty(t, keysOf(t, e, ofSession, "", 0), "not values of the session")
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	lease := started(t, e, "bg_a")
	found, err := e.Values(t.Context(), at, "", 0, false)
	require.NoError(t, err)
	require.Len(t, found, 2, "for the next attempt")

	before := e.Recorded()
	complete(t, lease, engine.StatusSucceeded)
	require.Less(t, e.Recorded(), before)
	found, err = e.Values(t.Context(), at, "", 0, false)
	require.NoError(t, err)
	require.Empty(t, found)
	require.ErrorIs(t, send(at), engine.ErrNotFound)
}

// valuesExpire: once their time has come, every read, comparison and limit treats
// values as missing.
func valuesExpire(t *testing.T, e *store) {
	limit(t, e, 400*kilo, 300*kilo)
	at := engine.Scope{Name: "kv:a"}
	put := func(key string, version int64, after time.Duration) (engine.Value, error) {
		v := engine.Value{Key: key, Data: []byte("12"), Version: version}
		if after > 0 {
			v.Expires = time.Now().Add(after)
		}
		return e.PutValue(t.Context(), at, v, engine.ValueLimit{Count: 3})
	}
	for key, after := range map[string]time.Duration{"second": time.Second, "minute": time.Minute, "never": 0} {
		v, err := put(key, 0, after)
		require.NoError(t, err)
		read, err := e.Value(t.Context(), at, key)
		require.NoError(t, err)
		require.True(t, v.Expires.Equal(read.Expires))
	}
	_, err := put("more", 0, 0)
	require.ErrorIs(t, err, engine.ErrValueCount)

	time.Sleep(time.Second)
	_, err = e.Value(t.Context(), at, "second")
	require.ErrorIs(t, err, engine.ErrNotFound, "at its very time")
	require.ErrorIs(t, e.DeleteValue(t.Context(), at, "second", engine.AnyVersion), engine.ErrNotFound)
	require.Equal(t, "minute=12 never=12", keysOf(t, e, at, "", 0))
	_, err = put("more", 0, 0)
	require.NoError(t, err, "there is room for it now")
	_, err = put("minute", engine.AnyVersion, 0)
	require.NoError(t, err, "and this one does not expire any more")

	time.Sleep(time.Hour)
	require.Equal(t, "minute=12 more=12 never=12", keysOf(t, e, at, "", 0))
	require.NoError(t, e.DeleteValue(t.Context(), at, "more", engine.AnyVersion))
	old, err := put("short", 0, time.Second)
	require.NoError(t, err)
	time.Sleep(time.Minute)
	_, err = put("short", old.Version, 0)
	require.ErrorIs(t, err, engine.ErrConflict, "its version is gone with it")
	_, err = put("short", 0, time.Second)
	require.NoError(t, err)

	time.Sleep(time.Minute)
	before := e.Recorded()
	_, err = e.Prune(t.Context(), engine.Retention{})
	require.NoError(t, err)
	require.Less(t, e.Recorded(), before, "pruning removes what has expired")
	after := e.Recorded()
	limit(t, e, 400*kilo, 300*kilo)
	require.Equal(t, after, e.Recorded())
}

func scopes(t *testing.T, e *store) {
	sizes := func(session, prefix string) (text []string) {
		found, err := e.Scopes(t.Context(), session, prefix)
		require.NoError(t, err)
		for _, s := range found {
			require.True(t, s.Changed.Equal(time.Now()))
			text = append(text, fmt.Sprintf("%s/%s:%d,%d", s.Session, s.Name, s.Count, s.Bytes))
		}
		return text
	}
	require.Empty(t, sizes("", "kv:"))
	for _, at := range []engine.Scope{{Name: "kv:a"}, {Session: "s", Name: "kv:a"}, {Session: "s", Name: "kv:é"}, {Session: "s"}, {Session: "t", Name: "xkv:"}} {
		set(t, e, at, "key", "12345")
		set(t, e, at, "ö", "1")
	}
	submit(t, e, "bg_a", "s")
	_, err := e.PutValue(t.Context(), engine.Scope{Session: "s", Run: "bg_a"}, engine.Value{Data: []byte(`1`)}, engine.ValueLimit{})
	require.NoError(t, err)

	require.Equal(t, []string{"/kv:a:2,11", "s/kv:a:2,11", "s/kv:é:2,11"}, sizes("", "kv:"))
	require.Equal(t, []string{"s/kv:a:2,11", "s/kv:é:2,11"}, sizes("s", "kv:"))
	require.Equal(t, []string{"s/kv:é:2,11"}, sizes("", "kv:é"))
	require.NoError(t, e.DropValues(t.Context(), engine.Scope{Session: "s", Name: "kv:a"}, ""))
	require.Equal(t, []string{"/kv:a:2,11", "s/kv:é:2,11"}, sizes("", "kv:"))
}
