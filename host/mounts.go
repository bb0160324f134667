package host

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/rootfs"
)

// mount adds the granted folders.
func (e *environment) mount(config wazero.ModuleConfig) (wazero.ModuleConfig, error) {
	mounts := wazero.NewFSConfig()
	for _, m := range e.call.Policy.Files {
		fs, err := rootfs.Open(m.Dir, rootfs.Options{ReadOnly: m.Mode != abi.FileWrite})
		if err != nil {
			reason := ErrDenied
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				reason = ErrFiles
			}
			return nil, &mountError{fmt.Errorf("%w: the folder granted as %s cannot be opened", reason, m.Path), err}
		}
		e.open, e.folders = append(e.open, fs), append(e.folders, fs)
		e.files.open[uint32(maxStream+len(e.folders))] = &listing{dir: fs.Folder()}
		mounts = mounts.(sysfs.FSConfig).WithSysFSMount(folder{fs, &e.files}, m.Path)
	}
	return config.WithFSConfig(mounts), nil
}
