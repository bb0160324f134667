package vault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
)

const (
	maxLinks   = 8 // links followed to a file
	maxReplays = 3 // attempts to read a file that is being replaced
)

// CheckFile returns an error if a file cannot be used as the source of a secret.
func CheckFile(name string) error {
	_, err := readFile(name)
	return err
}

// readFile reads a file that only this user can read or write. If the file belongs to
// root, its group may also read it. The file may be a link, such as those of Kubernetes,
// which rotates a value by replacing the folder behind a link.
func readFile(name string) (value string, err error) {
	for range maxReplays {
		var real string
		if real, err = resolve(name); err != nil {
			break
		}
		value, err = readPlain(real)
		if real == name || !errors.Is(err, fs.ErrNotExist) { // otherwise it was replaced in the meantime
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", host.ErrNoSecret
	}
	return value, err
}

// resolve follows links to a file. Only this user and root may be able to replace them.
func resolve(name string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(name)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return name, err
		}
		if err := owned.Link(name, info); err != nil {
			return "", err
		}

		target, err := os.Readlink(name)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(name), target)
		}
		name = target
	}
	return "", fmt.Errorf("%s: too many links", name)
}

// readPlain reads a file that is not a link.
func readPlain(name string) (string, error) {
	info, err := os.Lstat(name) // opening a pipe would block
	if err == nil {
		err = private(name, info)
	}
	if err != nil {
		return "", err
	}

	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err = file.Stat(); err == nil {
		err = private(name, info) // it may have been replaced since
	}
	if err != nil {
		return "", err
	}
	value, err := io.ReadAll(io.LimitReader(file, maxValue+1))
	return string(value), err
}

func private(name string, info os.FileInfo) error {
	if err := owned.File(name, info); err != nil {
		return err
	}
	others := fs.FileMode(0o077)
	if owned.ByRoot(info) { // root chose the group, as Kubernetes does with fsGroup and systemd with LoadCredential
		others = 0o037
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&others != 0 {
		return fmt.Errorf("%s can be read by others: chmod 600 %[1]s", name)
	}
	return nil
}
