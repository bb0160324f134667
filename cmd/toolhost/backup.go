package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/server"
)

func backupCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up the runs, schedules and values of the server",
		Long: `Back up what the server keeps: runs with their output and results, schedules, notices,
values, and users' secrets, which stay encrypted. The server continues meanwhile. If none
runs, the data folder is read directly.

FILE is a zip archive, which toolhost restore makes a data folder of. An existing file is
replaced once the new one is complete. Its content is as sensitive as the data folder.`,
		Example: `  toolhost backup toolhost-backup.zip`,
		Args:    cobra.ExactArgs(1),
	}
	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		size, err := replaceFile(args[0], func(file *os.File) error { return a.backUp(ctx, r.client, file) })
		return r.reply(map[string]any{"file": args[0], "bytes": size}, err, func() {
			r.printf("backed up in %s: %s\n", oneLine(args[0]), human.Bytes(size))
		})
	})
}

// backUp requests a backup from the server, or makes it if no server uses the data folder.
func (a *app) backUp(ctx context.Context, c *client.Client, w io.Writer) error {
	backup, err := c.Backup(ctx)
	var lost *client.Unreachable
	if a.config.addr == "" && errors.As(err, &lost) && lost.Refused {
		return a.backUpFolder(ctx, w)
	}
	if err != nil {
		return err
	}
	defer backup.Close()
	_, err = io.Copy(w, backup)
	return err
}

func (a *app) backUpFolder(ctx context.Context, w io.Writer) error {
	if err := a.config.checkKeptHere(); err != nil {
		return err
	}
	err := server.BackupDir(ctx, a.config.runsFolder(), w, a.logger())
	if errors.Is(err, fs.ErrNotExist) {
		return &hintError{fmt.Errorf("nothing to back up: %w", err), "toolhost serve keeps its runs there; choose another data folder with --data"}
	}
	return err
}

// runsFolder returns the folder in which serve keeps its runs.
func (c *loadedConfig) runsFolder() string { return filepath.Join(c.data, "runs") }

// checkKeptHere refuses to back up or restore runs that are in an external database.
func (c *loadedConfig) checkKeptHere() error {
	switch {
	case c.engine != "":
		return &usageError{errors.New("runs are kept in PostgreSQL, not in the data folder"), "back up and restore that database, for example with pg_dump and pg_restore"}
	case c.data == "":
		return errNoData
	}
	return nil
}

// replaceFile writes a file that only this user can read, unless write changes that, and
// replaces an earlier one. After an error or a crash the earlier file is unchanged.
func replaceFile(path string, write func(*os.File) error) (size int64, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return 0, &usageError{fmt.Errorf("%s is not a file", path), "name a file, which is made or replaced"}
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, err
	}

	if err = write(file); err == nil {
		size, err = file.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return size, err
}

func restoreCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a data folder of a backup",
		Long: `Make the folder runs of the data folder from a backup. It must be missing or empty, and
is complete or not made at all. Then start the server with toolhost serve.

The server does not know what happened after the backup was made. Runs that were queued,
waiting or running then count as interrupted: those of idempotent or readonly tools run
again, and all others end as orphaned. Do not restore a backup while the server that it
is from continues elsewhere.`,
		Example: `  toolhost restore toolhost-backup.zip
  toolhost restore toolhost-backup.zip --data /srv/toolhost`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.restore(cmd.Context(), args[0]) },
	}
}

func (a *app) restore(ctx context.Context, file string) error {
	if err := a.config.checkKeptHere(); err != nil {
		return err
	}
	foreign := owned.Foreign(a.config.data)
	if !foreign {
		if _, err := a.config.cacheDir(); err != nil { // checks that the data folder is this user's
			return err
		}
	}
	backup, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = backup.Close() }()

	if foreign {
		err = a.restoreFor(ctx, backup)
	} else {
		err = server.Restore(ctx, backup, a.config.runsFolder())
	}
	if errors.Is(err, fs.ErrExist) {
		return &usageError{err, "stop the server and move the folder away, or choose another data folder with --data"}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	a.printf("restored in %s: start toolhost serve\n", oneLine(a.config.runsFolder()))
	return nil
}

// restoreFor restores a backup for the user who owns the data folder. Root writes nothing
// into that folder, where its owner could redirect the writes: the new folder is made next
// to it.
func (a *app) restoreFor(ctx context.Context, backup *os.File) error {
	data, err := filepath.EvalSymlinks(a.config.data)
	if err != nil {
		return err
	}
	owner, err := os.Stat(data)
	if err != nil {
		return err
	}
	parent, err := os.Stat(filepath.Dir(data))
	if err != nil {
		return err
	}
	into := filepath.Join(data, "runs")
	switch info, err := os.Lstat(into); {
	case !owned.SameVolume(parent, owner):
		return &usageError{fmt.Errorf("%s is a volume of its own, where root cannot restore for another user", data), "run this command as its user"}
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "restore", Path: into, Err: fs.ErrExist}
	}
	if err := owned.Folder(filepath.Dir(data)); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(filepath.Dir(data), ".restore-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }()

	made := filepath.Join(staging, "runs")
	if err := server.Restore(ctx, backup, made); err != nil {
		return err
	}
	err = filepath.WalkDir(made, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return owned.Give(path, owner)
	})
	if err != nil {
		return err
	}
	if err := os.Remove(into); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be there if it is empty
		return &fs.PathError{Op: "restore", Path: into, Err: fs.ErrExist}
	}
	return os.Rename(made, into)
}
