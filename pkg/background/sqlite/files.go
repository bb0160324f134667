package sqlite

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// syncDir makes the names in a folder durable. Windows does so by itself.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openIn opens a file for writing, and creates it and its folder if they are
// missing.
func openIn(path string, flags int) (*os.File, error) {
	flags |= os.O_WRONLY | os.O_CREATE
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	return f, err
}

// writeAt writes p to a file at an offset. If p is the last part of the file, it
// also truncates the file there and makes it durable. After an error the file
// ends where p begins.
func writeAt(path string, p []byte, at int64, last bool) error {
	flags := 0
	if at == 0 {
		flags = os.O_TRUNC
	}
	f, err := openIn(path, flags)
	if err != nil {
		return err
	}

	if last {
		err = f.Truncate(at)
	}
	if err == nil {
		_, err = f.WriteAt(p, at)
	}
	if err == nil && last && at+int64(len(p)) > 0 {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(at)
	}
	return errors.Join(err, f.Close())
}

// writeFile writes the content of r to a durable file. After an error the file
// does not exist.
func writeFile(path string, r io.Reader) error {
	f, err := openIn(path, os.O_TRUNC)
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, r); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	return writeFile(to, src)
}

// readStart returns the first n bytes of a file, or all if it is shorter.
func readStart(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, n))
}

func missingFile(err error) bool { return errors.Is(err, fs.ErrNotExist) }
