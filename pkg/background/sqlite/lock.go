package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Lock locks a directory for this process, as an [Engine] does, until the returned Closer is
// closed. The error matches [engine.ErrLocked] if another process has locked it.
func Lock(dir string) (io.Closer, error) {
	f, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// lockDir locks dir for this process. The lock file contains the process id.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, held, err := tryLock(path)
	if held {
		pid, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%w: %s is used by process %.10s; only one process can use it at a time", engine.ErrLocked, dir, bytes.TrimSpace(pid))
	}
	if err != nil {
		return nil, err
	}

	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
