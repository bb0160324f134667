package sqlite

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// tryLock opens the file so that no other process can open it for writing
// until it is closed or the process ends, however it ends. It can still be read.
// held reports that another process has it open for writing.
func tryLock(path string) (f *os.File, held bool, err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, false, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, errors.Is(err, windows.ERROR_SHARING_VIOLATION), &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), false, nil
}
