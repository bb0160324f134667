package versions

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// pruneEvery is how often versions that no waiting run needs are removed.
const pruneEvery = 10 * time.Minute

// Maintain prunes the store every ten minutes, until ctx is done.
func (s *Store) Maintain(ctx context.Context) {
	if s.dir == "" {
		return
	}
	tick := time.Tick(pruneEvery)
	for {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
		if err := s.Prune(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("plugins that no run waits with any more were not removed", "folder", s.dir, "error", err)
		}
	}
}

// Prune removes the versions that no waiting run needs.
func (s *Store) Prune(ctx context.Context) error {
	err := s.pruneFolders(ctx)
	if s.cfg.SharedValues != nil {
		err = errors.Join(err, s.archive.prune(ctx, s.needed))
	}
	return err
}

// pruneFolders removes the folders of versions that no waiting run needs, except those that
// are used while it runs.
func (s *Store) pruneFolders(ctx context.Context) error {
	began := time.Now()
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	var needed map[string]bool
	if err == nil {
		needed, err = s.needed(ctx)
	}
	if err != nil {
		return err
	}

	for _, entry := range entries {
		digest := entry.Name()
		if needed[digest] {
			continue
		}
		removed, failed := s.removeFolder(digest, began)
		if err = errors.Join(err, failed); removed {
			s.cfg.Registry.Forget(ctx, digest)
		}
	}
	return err
}

// removeFolder removes the folder of a version, unless it was used since began.
func (s *Store) removeFolder(digest string, began time.Time) (removed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.uses[digest]; u != nil && !u.at.Before(began) {
		return false, nil
	}
	delete(s.uses, digest)
	return true, os.RemoveAll(s.folder(digest))
}

// needed returns the versions that active runs wait with, by digest.
func (s *Store) needed(ctx context.Context) (map[string]bool, error) {
	active, err := s.cfg.Runs.List(ctx, engine.Query{Active: true})
	digests := map[string]bool{}
	for _, r := range active {
		if r.StateSize > 0 {
			digests[r.Version] = true
		}
	}
	return digests, err
}
