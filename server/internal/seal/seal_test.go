package seal_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
	"github.com/toolhost/toolhost/server/internal/seal"
)

// opened opens an engine in a folder.
func opened(t *testing.T, folder string) *sqlite.Engine {
	t.Helper()
	e, err := sqlite.Open(t.Context(), folder, sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// What one host seals, all hosts of its engine open, and nobody else does.
func TestSeal(t *testing.T) {
	shared := memory.New()
	a, b := seal.New(shared), seal.New(shared)
	other := seal.New(memory.New())

	sealed, err := a.Seal(t.Context(), "test", []byte("body"))
	require.NoError(t, err)
	body, err := b.Open(t.Context(), "test", sealed)
	require.NoError(t, err)
	require.Equal(t, "body", string(body))
	_, err = other.Seal(t.Context(), "test", []byte("body"))
	require.NoError(t, err)

	for name, open := range map[string]func() ([]byte, error){
		"for another purpose": func() ([]byte, error) { return b.Open(t.Context(), "other", sealed) },
		"on another engine":   func() ([]byte, error) { return other.Open(t.Context(), "test", sealed) },
		"changed":             func() ([]byte, error) { return b.Open(t.Context(), "test", sealed[:len(sealed)-4]+"AAAA") },
		"without a signature": func() ([]byte, error) {
			id, _, _ := strings.Cut(sealed, ".")
			return b.Open(t.Context(), "test", id+"..Ym9keQ")
		},
		"nothing": func() ([]byte, error) { return b.Open(t.Context(), "test", "") },
	} {
		_, err := open()
		require.ErrorIs(t, err, seal.ErrInvalid, name)
	}
}

// A call that asks its user was canceled before its state is sealed: the keys are read all
// the same, the first time too.
func TestCanceledCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sealed, err := seal.New(opened(t, t.TempDir())).Seal(ctx, "test", []byte("x"))
	require.NoError(t, err)
	require.NotEmpty(t, sealed)
}

// Hosts that begin at the same time agree on a key.
func TestHostsAgree(t *testing.T) {
	shared := memory.New()
	var hosts []*seal.Sealer
	for range 4 {
		hosts = append(hosts, seal.New(shared))
	}
	sealed := make([]string, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() { sealed[i], _ = h.Seal(t.Context(), "test", []byte("x")) })
	}
	all.Wait()

	for _, one := range sealed {
		require.Equal(t, sealed[0], one)
	}
}

// A key is replaced after a day. What it has signed is valid for another day, on a host too
// that has not heard of the new one.
func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		a, b := seal.New(shared), seal.New(shared)
		sign := func(s *seal.Sealer) string {
			sealed, err := s.Seal(t.Context(), "test", []byte("x"))
			require.NoError(t, err)
			return sealed
		}
		first := sign(a)
		require.Equal(t, first, sign(b))
		time.Sleep(23 * time.Hour)
		require.Equal(t, first, sign(b))
		time.Sleep(2 * time.Hour)
		second := sign(b)
		require.NotEqual(t, first, second)
		for _, s := range []*seal.Sealer{a, b} {
			for _, sealed := range []string{first, second} {
				_, err := s.Open(t.Context(), "test", sealed)
				require.NoError(t, err)
			}
		}
		require.Equal(t, second, sign(a))

		time.Sleep(24 * time.Hour)
		_, err := b.Open(t.Context(), "test", first)
		require.ErrorIs(t, err, seal.ErrInvalid, "though no host has made a third key")
		third := sign(a)
		require.NotEqual(t, second, third)
		_, err = b.Open(t.Context(), "test", second)
		require.NoError(t, err)

		row, err := shared.Value(t.Context(), engine.Scope{Name: "seals"}, "keys")
		require.NoError(t, err)
		var keys []json.RawMessage
		require.NoError(t, json.Unmarshal(row.Data, &keys))
		require.Len(t, keys, 2)
	})
}

// A seal is as durable as the store.
func TestRestart(t *testing.T) {
	folder := t.TempDir()
	e := opened(t, folder)
	sealed, err := seal.New(e).Seal(t.Context(), "test", []byte("x"))
	require.NoError(t, err)
	require.NoError(t, e.Close())

	_, err = seal.New(opened(t, folder)).Open(t.Context(), "test", sealed)
	require.NoError(t, err)
}

// Every host knows what was revoked, until its key is gone anyway.
func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		a, b := seal.New(shared), seal.New(shared)
		sealed, err := a.Seal(t.Context(), "test", []byte("x"))
		require.NoError(t, err)
		revoked := func() bool {
			found, err := b.Revoked(t.Context(), sealed)
			require.NoError(t, err)
			return found
		}

		require.False(t, revoked())
		require.NoError(t, a.Revoke(t.Context(), sealed))
		require.True(t, revoked())
		time.Sleep(48 * time.Hour)
		require.False(t, revoked())
		_, err = b.Open(t.Context(), "test", sealed)
		require.ErrorIs(t, err, seal.ErrInvalid)
	})
}

// Damaged keys are replaced.
func TestDamagedKeys(t *testing.T) {
	shared := memory.New()
	_, err := shared.PutValue(t.Context(), engine.Scope{Name: "seals"}, engine.Value{Key: "keys", Data: []byte("[{"), Version: engine.AnyVersion}, engine.ValueLimit{})
	require.NoError(t, err)

	sealed, err := seal.New(shared).Seal(t.Context(), "test", []byte("x"))
	require.NoError(t, err)
	_, err = seal.New(shared).Open(t.Context(), "test", sealed)
	require.NoError(t, err)
}

// counting counts how often the keys are read.
type counting struct {
	engine.Engine
	reads int
}

func (c *counting) Value(ctx context.Context, scope engine.Scope, key string) (engine.Value, error) {
	c.reads++
	return c.Engine.Value(ctx, scope, key)
}

// Texts with unknown keys make a host read its keys once a second, not each time.
func TestUnknownKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Engine: memory.New()}
		s := seal.New(e)
		for range 100 {
			_, err := s.Open(t.Context(), "test", "AAAAAAAA.AAAA.AAAA")
			require.ErrorIs(t, err, seal.ErrInvalid)
		}
		require.Equal(t, 1, e.reads)

		time.Sleep(time.Second)
		_, err := s.Open(t.Context(), "test", "AAAAAAAA.AAAA.AAAA")
		require.ErrorIs(t, err, seal.ErrInvalid)
		require.Equal(t, 2, e.reads)
	})
}
