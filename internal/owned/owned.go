// Package owned reports which folders and files only this user, or root, can
// have written. Where the system does not say whom a file belongs to, it takes
// all for such.
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

// ErrUnsafe: others than this user could have put something into a folder, or
// have written a file in it.
var ErrUnsafe = errors.New("unsafe")

// What to do with a folder or a file before its permissions are taken back.
const (
	removeAll    = "removed what is in it" // nobody can review compiled code
	removeOthers = "removed what others put there"
	review       = "checked it"
)

// Folder reports whether others can put files into a folder. A link to one is
// refused: who can change where it leads is another question. Its error matches
// [ErrUnsafe], or says why the folder cannot be looked at.
func Folder(name string) error {
	info, err := os.Lstat(filepath.Clean(name)) // with a slash at its end it would be followed
	if err != nil {
		return err
	}
	if err := check(name, info); err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	return nil
}

// Behind reports whether others can put files into the folder that a name leads
// to. Links are followed, but one that the name itself is must not belong to
// somebody else. Its error matches [ErrUnsafe], or says why the folder cannot be
// looked at.
func Behind(name string) error {
	link, err := os.Lstat(filepath.Clean(name))
	if err != nil {
		return err
	}
	if link.Mode()&fs.ModeSymlink != 0 {
		if err := ownedBy(name, link); err != nil {
			return err
		}
	}

	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	return writable(real, info, removeOthers)
}

// Opened reports whether others can have written an open file, whose name may be
// a link: nobody else can put another one where that leads. The folder of the
// name itself is for [Behind]. Its error matches [ErrUnsafe], or says why the
// file cannot be looked at.
func Opened(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := writable(file.Name(), info, review); err != nil {
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
	if info.Mode()&fs.ModeSticky != 0 { // others can add files there, and replace none of ours
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
		return fmt.Errorf("%w: %s belongs to the user %d: use one of your own", ErrUnsafe, name, owner)
	}
	return nil
}

// File reports whether others can have written a file. What is no regular file
// is refused too.
func File(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no regular file", ErrUnsafe, name)
	}
	return check(name, info)
}

// ReadFile reads a file that others cannot have written.
func ReadFile(name string) ([]byte, error) {
	info, err := os.Lstat(name) // to open a pipe would wait for its other end
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
		err = File(name, info) // which may be another one by now
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// WriteFile writes a file, for this user only, that other processes may read at
// any moment: they see what there was, or all of data. It makes the folder.
func WriteFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}

	_, err = temp.Write(data)
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

// Temp is the folder for temporary files, if others cannot replace what this
// process puts there: where they can write to it too, it has to be sticky.
func Temp() (string, error) {
	name, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return "", err
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if owner, known := ownerOf(info); known && info.Mode()&fs.ModeSticky != 0 && (owner == 0 || owner == os.Geteuid()) {
		return name, nil
	}
	return name, Folder(name)
}
