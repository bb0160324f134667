package server

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

// ErrNoBackup means that runs are not in a data folder, but in memory or in an engine
// that is backed up on its own.
var ErrNoBackup error = &reason.Error{Reason: reason.Reason{
	Code: wire.CodeConflict, Text: "runs are not kept in the data folder: if they are in PostgreSQL, back up that database, for example with pg_dump",
}}

// Backup writes a backup of Config.DataDir to w while calls and runs continue. It
// contains everything acknowledged before, see [sqlite.Engine.Backup]. After an error,
// what was written is not a backup. Without a DataDir the error is [ErrNoBackup].
func (s *Service) Backup(ctx context.Context, w io.Writer) error {
	if s.dir == nil {
		return ErrNoBackup
	}
	s.audit.Admin("backup", "", "")
	return s.dir.Backup(ctx, w)
}

// BackupDir writes a backup of a former Config.DataDir that no process uses. The error
// matches [ErrLocked] if one does, and [os.ErrNotExist] if there is nothing to back up.
// The logger gets problems of the folder; nil logs nothing.
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

// Restore creates a Config.DataDir from a backup, see [sqlite.Restore]. The folder dir
// must be missing or empty.
func Restore(ctx context.Context, backup *os.File, dir string) error {
	info, err := backup.Stat()
	if err != nil {
		return err
	}
	return sqlite.Restore(ctx, backup, info.Size(), dir)
}
