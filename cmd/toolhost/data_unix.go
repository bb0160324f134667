//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/toolhost/toolhost/host"
)

// safeData refuses a data folder that others than this user, or root, can put
// files into: they could put code, or a socket, in the place of ours. A link to
// a folder must not be somebody else's either. Its error matches
// [host.ErrCacheFolder].
func safeData(dir string) error {
	for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := look(dir)
		if err != nil {
			return err
		}
		stat, known := info.Sys().(*syscall.Stat_t)
		switch {
		case known && int(stat.Uid) != os.Geteuid() && stat.Uid != 0:
			return fmt.Errorf("%w: the data folder %s belongs to the user %d: choose a folder of your own", host.ErrCacheFolder, dir, stat.Uid)
		case info.IsDir() && info.Mode().Perm()&0o022 != 0: // who may change a link, its folder says
			return fmt.Errorf("%w: the data folder %s can be written by others: chmod go-w %[2]s, after you have removed what is in it", host.ErrCacheFolder, dir)
		}
	}
	return nil
}
