package wasi

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"syscall"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/internal/rootfs"
)

// mounted is a folder that an instance has open.
type mounted struct {
	fs      *rootfs.FS
	listing *listing
}

// mount adds the granted folders. A folder with two paths is opened once, so that files can
// be moved from one path to the other.
func (e *Environment) mount(config wazero.ModuleConfig) (wazero.ModuleConfig, error) {
	granted, err := e.call.mounts()
	if err != nil {
		return nil, err
	}

	mounts := wazero.NewFSConfig()
	open := map[grant.Mount]mounted{}
	for i, m := range granted {
		key := grant.Mount{Dir: m.Dir, Mode: m.Mode}
		if _, again := open[key]; !again {
			fs, err := e.openFolder(m)
			if err != nil {
				return nil, err
			}
			open[key] = mounted{fs, &listing{dir: fs.Folder()}}
		}
		slot := uint32(maxStream + 1 + i)
		e.files.open[slot] = &descriptor{slot: slot, folder: m.Path, listing: open[key].listing}
		mounts = mounts.(sysfs.FSConfig).WithSysFSMount(folder{open[key].fs, &e.files}, m.Path)
	}
	return config.WithFSConfig(mounts), nil
}

func (e *Environment) openFolder(m grant.Mount) (*rootfs.FS, error) {
	fs, err := rootfs.Open(m.Dir, rootfs.Options{ReadOnly: m.Mode != abi.FileWrite})
	if err != nil {
		reason := grant.ErrDenied
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			reason = ErrFiles
		}
		return nil, &MountError{fmt.Errorf("%w: the folder granted as %s cannot be opened", reason, m.Path), err}
	}
	e.folders = append(e.folders, fs)
	return fs, nil
}

// mounts returns the granted folders. The working directory of a command comes first, at /:
// the libraries of C, Rust and TinyGo look for relative paths there, and Zig's looks in the
// first folder. Go's reads PWD.
func (c *Call) mounts() ([]grant.Mount, error) {
	all, dir := c.Ops.Grant.Files, c.Command.Dir
	if c.Shape != contract.Command || dir == "" {
		return all, nil
	}

	at := slices.IndexFunc(all, func(m grant.Mount) bool { return m.Path == dir })
	root := slices.IndexFunc(all, func(m grant.Mount) bool { return path.Clean(m.Path) == "/" })
	switch {
	case at < 0:
		return nil, &MountError{fmt.Errorf("%w: the working directory %s is not a granted folder", grant.ErrDenied, dir), errors.New("grant a folder with this path")}
	case root >= 0 && root != at:
		return nil, &MountError{fmt.Errorf("%w: the folder granted as / is not the working directory %s", grant.ErrDenied, dir), errors.New("programs look for relative paths at /: grant it with another path")}
	}
	work := all[at]
	if all = slices.Clone(all); at == root {
		all = slices.Delete(all, at, at+1)
	}
	work.Path = "/"
	return slices.Insert(all, 0, work), nil
}
