package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// lockDir makes this process the only one that uses dir. The file says which
// process it is.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, held, err := tryLock(path)
	if held {
		return nil, fmt.Errorf("%w: %s%s; only one process can use it at a time", engine.ErrLocked, dir, holder(path))
	}
	if err != nil {
		return nil, err
	}
	if err := writePID(f); err != nil {
		_ = f.Close()
		return nil, err
	}

	return f, nil
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// holder says which process holds the lock, as far as the file says it.
func holder(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" is used by process %d", pid)
}
