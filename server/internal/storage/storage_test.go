package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/wire"
)

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// scope is what the tests store something in.
var scope = engine.Scope{Name: "test"}

func (s *Store) put(t *testing.T, key string) error {
	t.Helper()
	worker, err := s.Engine.Join(t.Context(), engine.WorkerInfo{})
	if err != nil {
		return err
	}
	_, err = s.Engine.PutValue(t.Context(), scope, engine.Value{Key: key, Data: []byte(`"x"`)}, engine.ValueLimit{})
	return errors.Join(err, worker.Leave(context.Background()))
}

// TestOpen: what is stored in a data folder is there when it is opened again.
func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for name, c := range map[string]struct {
		cfg  Config
		kept bool
	}{
		"in memory": {Config{}, false},
		"in files":  {Config{DataDir: dir}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c.cfg)
			require.Equal(t, c.kept, s.HasFiles())
			require.NoError(t, s.put(t, "key"))
			require.NoError(t, s.Ready(t.Context()))
			require.Zero(t, s.Stats())
			require.Empty(t, s.Problems())
			require.NoError(t, s.Close())

			s = open(t, c.cfg)
			_, err := s.Engine.Value(t.Context(), scope, "key")
			require.Equal(t, c.kept, err == nil, "%v", err)
		})
	}

	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.db"), []byte("no database"), 0o600))
	_, err := Open(t.Context(), Config{DataDir: dir})
	require.ErrorIs(t, err, ErrDamaged)
}

// TestEngineAndDataDir: an engine stores runs instead of a folder, which one process uses
// nevertheless.
func TestEngineAndDataDir(t *testing.T) {
	cfg := Config{Engine: memory.New(), DataDir: filepath.Join(t.TempDir(), "data")}
	first := open(t, cfg)
	require.Equal(t, cfg.Engine, first.Engine)
	require.False(t, first.HasFiles())
	require.DirExists(t, cfg.DataDir)
	require.NoFileExists(t, filepath.Join(cfg.DataDir, "state.db"))
	_, err := Open(t.Context(), Config{Engine: memory.New(), DataDir: cfg.DataDir})
	require.ErrorIs(t, err, engine.ErrLocked)

	require.NoError(t, first.Close())
	require.NoError(t, open(t, cfg).Close())
}

// TestLost: a store whose database was deleted is not ready, and says so.
func TestLost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nobody can delete a file that is open")
	}
	dir := t.TempDir()
	s := open(t, Config{DataDir: dir})
	require.NoError(t, s.Err())
	require.NoError(t, os.Remove(filepath.Join(dir, "state.db")))

	require.ErrorIs(t, s.put(t, "key"), engine.ErrStorageLost)
	require.ErrorIs(t, s.Err(), engine.ErrStorageLost)
	require.ErrorIs(t, s.Ready(t.Context()), engine.ErrStorageLost)
	require.Equal(t, 1, s.Stats().Problems)
	require.Equal(t, []wire.FileProblem{{File: dir, Error: s.Stats().Failed}}, s.Problems())
}

// A sick engine is full, or does not answer.
type sick struct {
	*memory.Engine
	check, now error
}

func (e *sick) Check(context.Context) error { return e.check }

func (e *sick) Now(ctx context.Context) (time.Time, error) { return time.Time{}, e.now }

// TestReady: an engine that is full or away is not ready. Only the log has the details.
func TestReady(t *testing.T) {
	e, logs := &sick{Engine: memory.New()}, &testlog.Buffer{}
	s := open(t, Config{Engine: e, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	require.NoError(t, s.Ready(t.Context()))

	e.check = fmt.Errorf("writing the database: %w", engine.ErrFull)
	require.Equal(t, ErrFull, s.Ready(t.Context()))
	require.ErrorIs(t, ErrFull, engine.ErrFull)
	require.Equal(t, []wire.FileProblem{{File: "storage", Error: ErrFull.Error()}}, s.Problems())

	e.check, e.now = errors.New("of another kind"), errors.New("dial tcp: secret.internal:5432")
	require.Equal(t, ErrUnreachable, s.Ready(t.Context()))
	require.Empty(t, s.Problems())
	require.ErrorIs(t, ErrUnreachable, engine.ErrUnavailable)
	require.NotContains(t, ErrUnreachable.Error(), "5432")
	require.Contains(t, logs.String(), "5432")
}

// TestBackup: a folder is backed up while it is used, and when nobody uses it.
func TestBackup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{DataDir: dir})
	require.NoError(t, s.put(t, "key"))
	var used, unused bytes.Buffer
	require.NoError(t, s.Backup(t.Context(), &used))
	require.ErrorIs(t, BackupDir(t.Context(), dir, &unused, nil), engine.ErrLocked)
	require.NoError(t, s.Close())
	require.ErrorIs(t, BackupDir(t.Context(), t.TempDir(), &unused, nil), os.ErrNotExist)
	require.Zero(t, unused.Len())
	require.NoError(t, BackupDir(t.Context(), dir, &unused, nil))

	for name, backup := range map[string]*bytes.Buffer{"used": &used, "unused": &unused} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "backup.zip")
			require.NoError(t, os.WriteFile(path, backup.Bytes(), 0o600))
			file, err := os.Open(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, file.Close()) }()
			restored := filepath.Join(t.TempDir(), "data")
			require.NoError(t, Restore(t.Context(), file, restored))
			_, err = open(t, Config{DataDir: restored}).Engine.Value(t.Context(), scope, "key")
			require.NoError(t, err)
		})
	}

	require.ErrorIs(t, open(t, Config{}).Backup(t.Context(), &used), ErrNoBackup)
}
