package values

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

var write = host.KV{Mode: abi.StoreWrite}

// A plugin has the store that it was granted: one for all sessions, or one for each.
func TestGranted(t *testing.T) {
	calls := Calls{Engine: memory.New()}
	own := host.KV{Mode: abi.StoreWrite, Scope: host.KVSession}
	alice, bob, nobody := host.Call{Session: "alice"}, host.Call{Session: "bob"}, host.Call{}
	require.Nil(t, calls.Session(nobody))
	require.Nil(t, calls.KV("notes", host.KV{}, alice), "nothing is granted")
	require.Nil(t, calls.KV("notes", own, nobody), "the call has no session")

	stores := []host.Values{calls.Session(alice), calls.Session(bob), calls.KV("notes", write, alice), calls.KV("notes", own, alice), calls.KV("notes", own, bob), calls.KV("other", write, alice)}
	for i, v := range stores {
		missing, err := v.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Zero(t, missing, "store %d is another's", i)
		version, err := v.Set(t.Context(), "a", json.RawMessage(`1`), 0, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, version)
	}

	found, err := calls.KV("notes", write, nobody).Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, host.Value{Key: "a", Version: 1, Bytes: 1, Data: json.RawMessage(`1`)}, found, "all sessions share it")
	page, err := calls.KV("notes", own, bob).List(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Equal(t, []host.Value{{Key: "a", Version: 1, Bytes: 1}}, page)
}

// A plugin learns why it is refused, and what to do.
func TestRefusals(t *testing.T) {
	calls := Calls{Engine: memory.New()}
	one, few := calls.KV("notes", host.KV{Mode: abi.StoreWrite, Keys: 1}, host.Call{}), calls.KV("short", host.KV{Mode: abi.StoreWrite, Bytes: 10}, host.Call{})
	_, err := one.Set(t.Context(), "a", json.RawMessage(`1`), 0, 0)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		in      host.Values
		key     string
		data    string
		version int64
		code    int32
		want    string
	}{
		"too many":  {one, "b", `1`, 0, abi.CallLimit, "the key-value store of notes may have 1 values: delete one first, or have the operator raise grants.notes.kv.keys"},
		"too large": {few, "b", `"0123456789"`, 0, abi.CallLimit, "the key-value store of short may have 10 bytes of keys and values: delete or shorten one first, or have the operator raise grants.short.kv.bytes"},
		"huge":      {one, "a", `"` + strings.Repeat("x", abi.MaxKVValue) + `"`, host.AnyVersion, abi.CallInvalid, "value: it has 262146 bytes, and at most 262144 are allowed"},
		"not JSON":  {one, "a", `nope`, 1, abi.CallInvalid, "value: not valid JSON"},
		"bad key":   {one, "a/b", `1`, 0, abi.CallInvalid, "key: expected 1 to 128 letters, digits and . _ : @ -"},
		"conflict":  {one, "a", `1`, 7, abi.CallConflict, "it has changed in the meantime: read it again"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.in.Set(t.Context(), c.key, json.RawMessage(c.data), c.version, 0)
			require.Equal(t, &host.Refusal{Code: c.code, Message: c.want}, err)
		})
	}
}

// The values of a session have limits that no grant sets.
func TestSessionIsFull(t *testing.T) {
	v := Calls{Engine: memory.New()}.Session(host.Call{Session: "alice"})
	for i := range 256 {
		_, err := v.Set(t.Context(), fmt.Sprint("k", i), json.RawMessage(`1`), 0, 0)
		require.NoError(t, err)
	}
	_, err := v.Set(t.Context(), "more", json.RawMessage(`1`), 0, 0)
	require.Equal(t, &host.Refusal{Code: abi.CallLimit, Message: "this session already has the maximum of 256 values; delete one first"}, err)
}

// broken is an engine that cannot be reached.
type broken struct{ engine.Engine }

func (broken) Value(context.Context, engine.Scope, string) (engine.Value, error) {
	return engine.Value{}, errors.New("password of the database is wrong")
}

// What is not the plugin's fault is logged with the call, and is no refusal.
func TestUnreachable(t *testing.T) {
	var log testlog.Buffer
	v := Calls{Engine: broken{memory.New()}, Log: slog.New(slog.NewTextHandler(&log, nil))}.Session(host.Call{ID: "call_1", Session: "alice"})
	_, err := v.Get(t.Context(), "a")
	require.Error(t, err)
	_, refused := errors.AsType[*host.Refusal](err)
	require.False(t, refused)
	require.Contains(t, log.String(), "call_1")
	require.Contains(t, log.String(), "password of the database is wrong")
}

// full is an engine whose disk is full.
type full struct{ engine.Engine }

func (full) PutValue(context.Context, engine.Scope, engine.Value, engine.ValueLimit) (engine.Value, error) {
	return engine.Value{}, fmt.Errorf("writing the database: %w", engine.ErrFull)
}

// A plugin learns that the disk is full, and the log has it.
func TestFullDisk(t *testing.T) {
	var log testlog.Buffer
	v := Calls{Engine: full{memory.New()}, Log: slog.New(slog.NewTextHandler(&log, nil))}.KV("notes", write, host.Call{ID: "call_1"})
	_, err := v.Set(t.Context(), "a", json.RawMessage(`1`), 0, 0)
	refusal, ok := errors.AsType[*host.Refusal](err)
	require.True(t, ok, "%v", err)
	require.EqualValues(t, abi.CallFailed, refusal.Code)
	require.Contains(t, refusal.Message, "the disk of the server is full, so nothing can be stored")
	require.Contains(t, log.String(), "call_1")
}

// Of writes that race, each counts once: for a version, and for the last keys of a quota.
func TestRaces(t *testing.T) {
	v := Calls{Engine: memory.New()}.KV("notes", host.KV{Mode: abi.StoreWrite, Keys: 4}, host.Call{})
	race := func(key func(i int) string) (won int) {
		errs := make([]error, 16)
		var writers sync.WaitGroup
		for i := range errs {
			writers.Go(func() { _, errs[i] = v.Set(t.Context(), key(i), json.RawMessage(`1`), 0, 0) })
		}
		writers.Wait()
		for _, err := range errs {
			if err == nil {
				won++
			}
		}
		return won
	}
	require.Equal(t, 1, race(func(int) string { return "one" }))
	require.Equal(t, 3, race(func(i int) string { return fmt.Sprint("k", i) }))
}

// A call that was stopped has written a whole value, or none.
func TestStoppedWrite(t *testing.T) {
	v := Calls{Engine: memory.New()}.KV("notes", write, host.Call{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	want := `"` + strings.Repeat("x", 100_000) + `"`
	_, err := v.Set(ctx, "a", json.RawMessage(want), 0, 0)
	require.NoError(t, err)
	found, err := v.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, want, string(found.Data))
}

// A value that has expired is missing, and its version does not come back.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := Calls{Engine: memory.New()}.KV("notes", write, host.Call{})
		_, err := v.Set(t.Context(), "a", json.RawMessage(`1`), 0, time.Minute)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		found, err := v.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Zero(t, found)
		version, err := v.Set(t.Context(), "a", json.RawMessage(`2`), 0, 0)
		require.NoError(t, err)
		require.Greater(t, version, int64(1))
	})
}
