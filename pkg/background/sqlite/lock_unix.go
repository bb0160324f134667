//go:build !windows

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// tryLock opens the file and locks it until it is closed or the process ends,
// however it ends. held reports that another process has locked it.
func tryLock(path string) (f *os.File, held bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}

	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, errors.Is(err, syscall.EWOULDBLOCK), err
	}

	return f, false, nil
}
