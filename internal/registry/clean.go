package registry

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// Cleaned lists what [Store.Clean] removed.
type Cleaned struct {
	Sources []string // sources of the removed artifacts
	Bytes   int64    // size of the removed content, in bytes
}

// stagingAge is the age at which a partly written file counts as abandoned.
const stagingAge = time.Hour

// Clean removes the artifacts that keep does not select, and all unreferenced content.
// Other processes may pull at the same time: the content that they refer to stays, or they
// write it again.
//
// Clean first moves content out of the store, and then checks the references again. A pull
// first writes its reference, and then checks that its content exists. So one of the two
// always notices the other.
func (s *Store) Clean(keep func(Artifact) bool) (c Cleaned, err error) {
	if err := s.check(); err != nil {
		return c, err
	}
	artifacts, err := s.Artifacts()
	if err != nil {
		return c, err
	}
	for _, a := range artifacts {
		if keep(a) {
			continue
		}
		if err := os.Remove(s.ref(a.Source)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
		c.Sources = append(c.Sources, a.Source)
	}

	taken, err := s.takeUnused()
	if err != nil {
		return c, err
	}
	used, err := s.used()
	if err != nil {
		return c, err
	}
	for d, file := range taken {
		if used[d] {
			err = errors.Join(err, os.Rename(file, s.blob(d)))
			continue
		}
		if info, statErr := os.Stat(file); statErr == nil {
			c.Bytes += info.Size()
		}
		err = errors.Join(err, os.Remove(file))
	}
	return c, err
}

// used returns the digests that the artifacts refer to.
func (s *Store) used() (map[digest.Digest]bool, error) {
	artifacts, err := s.Artifacts()
	used := map[digest.Digest]bool{}
	for _, a := range artifacts {
		for _, d := range a.contents() {
			used[d] = true
		}
	}
	return used, err
}

// takeUnused renames the unreferenced content, and returns the new names. It also removes
// abandoned temporary files, and whatever an earlier Clean has left behind.
func (s *Store) takeUnused() (map[digest.Digest]string, error) {
	used, err := s.used()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(s.blob(digest.FromString("")))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	taken := map[digest.Digest]string{}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		d := digest.NewDigestFromEncoded(digest.SHA256, strings.TrimPrefix(e.Name(), "."))
		switch info, err := e.Info(); {
		case err != nil:
		case isSHA256(d) && e.Name()[0] == '.':
			taken[d] = file
		case isSHA256(d) && !used[d]:
			to := filepath.Join(dir, "."+e.Name())
			if err := os.Rename(file, to); err != nil {
				return taken, err
			}
			taken[d] = to
		case !isSHA256(d) && time.Since(info.ModTime()) > stagingAge:
			_ = os.Remove(file)
		}
	}
	return taken, nil
}
