package server

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/cluster"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/seal"
	"github.com/toolhost/toolhost/server/internal/secret"
	"github.com/toolhost/toolhost/server/internal/storage"
	"github.com/toolhost/toolhost/server/internal/values"
	"github.com/toolhost/toolhost/server/internal/versions"
)

// Default quotas of a Config.DataDir.
const (
	DefaultLogQuota    = 1 << 30 // maximum size of the output of all runs, in bytes
	DefaultRecordQuota = 1 << 30 // maximum size of the records of all runs and schedules, in bytes
)

// ErrDamaged is the error of [Open] for a Config.DataDir whose database is damaged, missing,
// or changed since its last use.
var ErrDamaged = storage.ErrDamaged

// ErrUnreachable means that the engine for background runs does not answer, for example
// because its database is down. The log says why. It matches [engine.ErrUnavailable].
var ErrUnreachable = storage.ErrUnreachable

// ErrFull means that the disk is full. The server continues by itself once there is room.
// It matches [engine.ErrFull].
var ErrFull = storage.ErrFull

// ErrNoBackup means that runs are not in a data folder, but in memory or in an engine that has
// to be backed up separately.
var ErrNoBackup = storage.ErrNoBackup

// StorageStats report stored state that was damaged or lost. They are zero for an engine
// that does not report it.
type StorageStats = storage.Stats

// store holds what outlives a Service.
type store struct {
	storage *storage.Store
	engine  engine.Engine // engine of the storage
	audit   record.Auditor
}

// openStore opens what outlives the service.
func (s *Service) openStore(ctx context.Context) (err error) {
	s.storage, err = storage.Open(ctx, storage.Config{Engine: s.cfg.Engine, DataDir: s.cfg.DataDir, LogQuota: s.cfg.LogQuota, Logger: s.log})
	if err != nil {
		return err
	}
	s.engine = s.storage.Engine
	s.seals = seal.New(s.engine)
	s.versions = versions.New(versions.Config{DataDir: s.cfg.DataDir, Runs: s.engine, SharedValues: s.cfg.Engine, Registry: s.registry, Logger: s.log})
	shared := s.cfg.Engine != nil
	s.cluster = cluster.New(cluster.Config{Process: s.process, Name: s.cfg.Name, Version: s.cfg.Version, SharedEngine: shared, Workers: s.engine, Logger: s.log})
	s.questions.SharedEngine, s.questions.Log = shared, s.log
	s.questions.Mailbox = func(session, run string) question.Mailbox { return s.runs.Mailbox(session, run) }

	if s.audit, err = record.OpenAudit(s.cfg.AuditDir, s.cfg.Audit, s.engine, s.telemetry); err != nil { // the lock of the runs' folder protects the log too
		return err
	}
	s.audit.Grants(s.registry.Plugins())
	s.secrets = secret.New(secret.Config{Engine: s.engine, Configured: func() host.Secrets { return s.now().cfg.Secrets }, DryRun: InDryRun, Audit: &s.audit, Log: s.log})
	return s.secrets.Renew(ctx)
}

// kept reports whether runs have files that an operator can open.
func (s *store) kept() bool { return s.storage.HasFiles() }

// StorageErr returns why nothing can be stored until the service is opened again: an error
// that matches [engine.ErrStorageLost]. Otherwise it returns nil.
func (s *Service) StorageErr() error { return s.storage.Err() }

// Ready returns why nothing can be stored now: an error of [Service.StorageErr], [ErrFull] or
// [ErrUnreachable]. It is nil if storage works.
func (s *Service) Ready(ctx context.Context) error { return s.storage.Ready(ctx) }

// Backup writes a backup of Config.DataDir to w while calls and runs continue. It contains
// everything acknowledged before Backup was called. If Backup returns an error, the data
// written so far is not a usable backup. Without a DataDir the error is [ErrNoBackup].
func (s *Service) Backup(ctx context.Context, w io.Writer) error {
	if s.kept() {
		s.audit.Admin("backup", "", "")
	}
	return s.storage.Backup(ctx, w)
}

// BackupDir writes a backup of a folder that was a Config.DataDir and that no process uses.
// The error matches [ErrLocked] if a process uses it, and [os.ErrNotExist] if there is nothing
// to back up. The logger gets problems of the folder; nil logs nothing.
func BackupDir(ctx context.Context, dir string, w io.Writer, log *slog.Logger) error {
	return storage.BackupDir(ctx, dir, w, log)
}

// Restore creates a Config.DataDir from a backup. The folder dir must be missing or empty,
// otherwise the error matches [os.ErrExist]. Afterwards it is complete, or unchanged if
// Restore failed. Open treats runs that were active in the backup as interrupted: they may
// have continued since.
func Restore(ctx context.Context, backup *os.File, dir string) error {
	return storage.Restore(ctx, backup, dir)
}

// AnyVersion stores or deletes a value regardless of its version.
const AnyVersion = engine.AnyVersion

// KV manages the key-value stores of plugins, for operators. A store outlives its plugin
// and the plugin's grant.
type KV = values.KV

// KV returns the key-value stores of plugins.
func (s *store) KV() KV { return values.NewKV(s.engine, s.audit.Admin) }
