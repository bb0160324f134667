package codecache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/internal/owned"
)

const (
	// stagingFolder is the folder of staging directories within Config.Dir.
	stagingFolder = "staging"
	// stagingPrefix and a number name a staging directory.
	stagingPrefix = "toolhost-"
	// stagingLock is a file in it that is locked while its process lives.
	stagingLock = "lock"
	// stagingAge is the age after which an unlocked staging directory counts as
	// abandoned.
	stagingAge = time.Minute
)

// staging is a directory where one host prepares files, and from which it loads
// them.
type staging struct {
	dir  string
	lock *os.File
}

// tempStaging makes a staging directory where everybody may have one.
func tempStaging() (staging, error) {
	in, err := owned.Temp()
	if err != nil {
		return staging{}, err
	}
	return newStaging(in)
}

func newStaging(in string) (staging, error) {
	dir, err := os.MkdirTemp(in, stagingPrefix+"*")
	if err != nil {
		return staging{}, err
	}
	file, err := os.OpenFile(filepath.Join(dir, stagingLock), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err == nil && !lock(file) {
		err = errors.Join(errors.New("its lock is taken"), file.Close())
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return staging{}, err
	}

	return staging{dir, file}, nil
}

// close removes the directory. It may be called twice.
func (s staging) close() error {
	_ = os.RemoveAll(s.dir)
	if err := s.lock.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// removeAbandoned removes the staging directories of hosts that ended without
// Close: nobody holds their lock. One without a lock file yet is empty. Other
// folders of that name may be somebody's own.
func removeAbandoned(in string) {
	all, _ := os.ReadDir(in)
	for _, e := range all {
		number, ours := strings.CutPrefix(e.Name(), stagingPrefix)
		_, notNumber := strconv.ParseUint(number, 10, 64)
		info, err := e.Info()
		if err != nil || !e.IsDir() || !ours || notNumber != nil || time.Since(info.ModTime()) < stagingAge {
			continue
		}

		dir := filepath.Join(in, e.Name())
		file, err := os.OpenFile(filepath.Join(dir, stagingLock), os.O_RDWR, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_ = os.Remove(dir)
		case err == nil && lock(file):
			_ = os.RemoveAll(dir)
		}
		_ = file.Close() // a nil file is an error that nobody needs
	}
}
