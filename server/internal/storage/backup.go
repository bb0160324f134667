package storage

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/pkg/background/sqlite"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// ErrNoBackup means that runs are not in a data folder.
var ErrNoBackup error = &reason.Error{Reason: reason.Reason{
	Code: wire.CodeConflict, Text: "runs are not kept in the data folder: if they are in PostgreSQL, back up that database, for example with pg_dump",
}}

// Backup writes a backup of the data folder: see [sqlite.Engine.Backup]. If runs are not in
// a data folder, the error is [ErrNoBackup].
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	if s.dir == nil {
		return ErrNoBackup
	}
	return s.dir.Backup(ctx, w)
}

// BackupDir writes a backup of a data folder that no process uses. The error matches
// [engine.ErrLocked] if a process uses it, and [os.ErrNotExist] if there is nothing to back
// up.
func BackupDir(ctx context.Context, dir string, w io.Writer, log *slog.Logger) error {
	if _, err := os.Stat(filepath.Join(dir, "state.db")); err != nil {
		return err
	}
	e, err := sqlite.Open(ctx, dir, sqlite.Config{Logger: log})
	if err != nil {
		return err
	}
	return errors.Join(e.Backup(ctx, w), e.Close())
}

// Restore creates a data folder from a backup: see [sqlite.Restore].
func Restore(ctx context.Context, backup *os.File, dir string) error {
	info, err := backup.Stat()
	if err != nil {
		return err
	}
	return sqlite.Restore(ctx, backup, info.Size(), dir)
}
