package sqlite

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// syncDir makes the names in a folder durable. Windows does so itself.
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

// openIn opens a file for writing, and makes it and its folder if they are
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

// writeAt writes p to a file at an offset. After an error the file is no longer
// than before.
func writeAt(path string, flags int, p []byte, at int64) error {
	f, err := openIn(path, flags)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(p, at); err != nil {
		_ = f.Truncate(at)
	}
	return errors.Join(err, f.Close())
}

// writeFile makes a durable file of what r gives. If there is an error, there is
// none.
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

// syncAs makes a file durable with its first n bytes; it makes an empty one if
// there is none.
func syncAs(path string, n int64) error {
	f, err := openIn(path, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(n)
	if err == nil && n > 0 {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	return writeFile(to, src)
}

// readStart returns what a file has of its first n bytes.
func readStart(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, n)
	read, err := io.ReadFull(f, data)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return data[:read], err
}

// removeAll removes files and folders if they are there.
func removeAll(paths ...string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

func missingFile(err error) bool { return errors.Is(err, fs.ErrNotExist) }
