package server_test

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
	"github.com/toolhost/toolhost/server"
)

func openOn(t *testing.T, cfg server.Config) *server.Service {
	t.Helper()
	s, err := server.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// What one host seals, all hosts of its engine open, and nobody else does.
func TestSeals(t *testing.T) {
	shared := memory.New()
	a, b := openOn(t, server.Config{Engine: shared}).Seals(), openOn(t, server.Config{Engine: shared}).Seals()
	other := openOn(t, server.Config{}).Seals()

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
		require.ErrorIs(t, err, server.ErrSeal, name)
	}
}

// A call that asks its user was canceled before its state is sealed: the keys are read all
// the same, the first time too.
func TestSealsOfCanceledCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sealed, err := openOn(t, server.Config{DataDir: t.TempDir()}).Seals().Seal(ctx, "test", []byte("x"))
	require.NoError(t, err)
	require.NotEmpty(t, sealed)
}

// Hosts that begin at the same time agree on a key.
func TestSealsAgree(t *testing.T) {
	shared := memory.New()
	var hosts []*server.Seals
	for range 4 {
		hosts = append(hosts, openOn(t, server.Config{Engine: shared}).Seals())
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
func TestSealsRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		a, b := openOn(t, server.Config{Engine: shared}).Seals(), openOn(t, server.Config{Engine: shared}).Seals()
		seal := func(s *server.Seals) string {
			sealed, err := s.Seal(t.Context(), "test", []byte("x"))
			require.NoError(t, err)
			return sealed
		}
		first := seal(a)
		require.Equal(t, first, seal(b))
		time.Sleep(23 * time.Hour)
		require.Equal(t, first, seal(b))
		time.Sleep(2 * time.Hour)
		second := seal(b)
		require.NotEqual(t, first, second)
		for _, s := range []*server.Seals{a, b} {
			for _, sealed := range []string{first, second} {
				_, err := s.Open(t.Context(), "test", sealed)
				require.NoError(t, err)
			}
		}
		require.Equal(t, second, seal(a))

		time.Sleep(24 * time.Hour)
		_, err := b.Open(t.Context(), "test", first)
		require.ErrorIs(t, err, server.ErrSeal, "though no host has made a third key")
		third := seal(a)
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
func TestSealsAfterRestart(t *testing.T) {
	folder := t.TempDir()
	s, err := server.Open(t.Context(), server.Config{DataDir: folder})
	require.NoError(t, err)
	sealed, err := s.Seals().Seal(t.Context(), "test", []byte("x"))
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))

	_, err = openOn(t, server.Config{DataDir: folder}).Seals().Open(t.Context(), "test", sealed)
	require.NoError(t, err)
}
