// Package owned checks that a folder or file can have been written only by this user or
// root. On systems that do not report owners, every check passes.
package owned

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrUnsafe means that other users could have written a folder or file.
var ErrUnsafe = errors.New("unsafe")

// What to do before repairing the permissions of a folder or file.
const (
	removeAll    = "removed what is in it" // nobody can review compiled code
	removeOthers = "removed what others put there"
	review       = "checked it"
)

// Folder returns an error that matches [ErrUnsafe] if other users can put files into a
// folder. It refuses links, because it does not check who can change their targets.
func Folder(name string) error {
	info, err := os.Lstat(filepath.Clean(name)) // a slash at the end would follow a link
	if err == nil {
		err = check(name, info)
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	return err
}

// Behind is like [Folder], for a name that may be a link. The link itself must belong to
// this user or root.
func Behind(name string) error {
	link, err := os.Lstat(filepath.Clean(name))
	if err == nil && link.Mode()&fs.ModeSymlink != 0 {
		err = ownedBy(name, link)
	}
	if err != nil {
		return err
	}

	real, info, err := target(name)
	if err != nil {
		return err
	}
	return writable(real, info, removeOthers)
}

// target returns the file that a name leads to.
func target(name string) (real string, info fs.FileInfo, err error) {
	if real, err = filepath.EvalSymlinks(name); err == nil {
		info, err = os.Stat(real)
	}
	return real, info, err
}

// Opened returns an error that matches [ErrUnsafe] if other users can have written an
// open file. If its name is a link, other users must not be able to replace the target
// either. Opened does not check the folder that contains the name: use [Behind] for that.
func Opened(file *os.File) error {
	info, err := file.Stat()
	if err == nil {
		err = writable(file.Name(), info, review)
	}
	if err != nil {
		return err
	}

	link, err := os.Lstat(file.Name())
	if err != nil || link.Mode()&fs.ModeSymlink == 0 {
		return err
	}
	real, err := filepath.EvalSymlinks(file.Name())
	if err != nil {
		return err
	}

	dir := filepath.Dir(real)
	if info, err = os.Stat(dir); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSticky != 0 { // others can add files there, but not replace ours
		return ownedBy(dir, info)
	}
	return writable(dir, info, removeOthers)
}

func check(name string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %s is a link: use the folder it leads to", ErrUnsafe, name)
	}
	return writable(name, info, removeAll)
}

func writable(name string, info fs.FileInfo, first string) error {
	if err := ownedBy(name, info); err != nil {
		return err
	}
	if _, known := ownerOf(info); known && info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s can be written by others: chmod go-w %[2]s, after you have %s", ErrUnsafe, name, first)
	}
	return nil
}

func ownedBy(name string, info fs.FileInfo) error {
	if owner, known := ownerOf(info); known && owner != os.Geteuid() && owner != 0 {
		return fmt.Errorf("%w: %s belongs to the user %d: use one of your own, or have chown give it to you or root, after you have checked it", ErrUnsafe, name, owner)
	}
	return nil
}

// Link returns an error that matches [ErrUnsafe] if other users can replace a link. They can if
// they own the link or its folder, or if they can write to the folder and the folder is not
// sticky.
func Link(name string, info fs.FileInfo) error {
	if err := ownedBy(name, info); err != nil {
		return err
	}
	real, dir, err := target(filepath.Dir(name))
	if err != nil {
		return err
	}
	if dir.Mode()&fs.ModeSticky != 0 {
		return ownedBy(real, dir)
	}
	return writable(real, dir, removeOthers)
}

// Foreign reports whether this process runs as root, and a folder belongs to another user
// who is the only one that can write to it. The name may be a link.
func Foreign(name string) bool {
	_, info, err := target(name)
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	owner, known := ownerOf(info)
	return known && owner != 0 && info.Mode().Perm()&0o022 == 0
}

// ByRoot reports whether a file belongs to root.
func ByRoot(info fs.FileInfo) bool {
	owner, known := ownerOf(info)
	return known && owner == 0
}

// File returns an error that matches [ErrUnsafe] if other users can have written a file,
// or if it is not a regular file.
func File(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrUnsafe, name)
	}
	return check(name, info)
}

// ReadFile reads a file, and fails if other users can have written it.
func ReadFile(name string) ([]byte, error) {
	info, err := os.Lstat(name) // opening a pipe would block
	if err == nil {
		err = File(name, info)
	}
	if err != nil {
		return nil, err
	}

	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	if info, err = file.Stat(); err == nil {
		err = File(name, info) // it may have been replaced
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// WriteFile writes a file that only this user can read and write, and creates its folder.
// It is atomic: readers see either the old content or all of data, even after a power
// loss.
func WriteFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return Replace(name, data, 0o600)
}

// Replace writes a file with the permissions perm into an existing folder. It is as
// atomic as [WriteFile].
func Replace(name string, data []byte, perm fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}

	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(perm)
	}
	if err == nil {
		err = temp.Sync()
	}
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

// Temp returns the folder for temporary files, if other users cannot replace this
// process's files there. If they can write to the folder, it must be sticky.
func Temp() (string, error) {
	name, info, err := target(os.TempDir())
	if err != nil {
		return "", err
	}
	if owner, known := ownerOf(info); known && info.Mode()&fs.ModeSticky != 0 && (owner == 0 || owner == os.Geteuid()) {
		return name, nil
	}
	return name, Folder(name)
}
