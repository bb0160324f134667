package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/plugins"
)

// lock returns the lock of the configuration that lists the plugins. If no configuration
// file is in force, the lock has no file name. Root does not keep accepted plugins in a
// data folder that belongs to another user: that user's server keeps them when it loads
// them.
func (c *loadedConfig) lock() plugins.Lock {
	config := c.lockedConfig()
	if config == "" || c.data == "" {
		return plugins.Lock{}
	}
	k := plugins.Lock{File: filepath.Join(filepath.Dir(config), lock.Name)}
	if !owned.Foreign(c.data) {
		k.Kept = filepath.Join(c.data, "accepted")
	}
	if _, ok := c.trusted[config]; ok {
		k.Check = func(text []byte) error { return trustStore(userData()).checkLock(config, text) }
	}
	return k
}

// lockedConfig returns the file whose folder contains the lock: the file that lists the
// plugins. If none does, it is the last file that had a lock next to it when it was read,
// or else the last file.
func (c *loadedConfig) lockedConfig() string {
	if source := c.values["plugins"].source; slices.Contains(c.files, source) {
		return source
	}
	if c.lockedAt != "" || len(c.files) == 0 {
		return c.lockedAt
	}
	return c.files[len(c.files)-1]
}

// findLock finds the last file with a lock.
func (c *loadedConfig) findLock() {
	for _, name := range c.files {
		if hasLock(name) {
			c.lockedAt = name
		}
	}
}

func hasLock(config string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(config), lock.Name))
	return err == nil
}

// keepLock keeps, across a reload, the file with the lock, even if the lock has been
// removed: its content stays in force until a restart, and no other lock takes its place.
func (c *loadedConfig) keepLock(before *loadedConfig) {
	if at := before.lockedAt; slices.Contains(c.files, at) && !hasLock(at) {
		c.lockedAt = at
	}
}

// trustLock trusts a lock before it is written, if the configuration next to it has to be
// trusted.
func (c *loadedConfig) trustLock(f *lock.File) error {
	config := c.lockedConfig()
	data, ok := c.trusted[config]
	if !ok {
		return nil
	}
	text, err := f.Encode()
	if err != nil {
		return err
	}
	real, err := realPath(config)
	if err != nil {
		return err
	}
	return trustStore(userData()).add(real, data, text)
}

// describeLock says which version the lock accepts under a plugin's name. It returns
// nothing if there is no lock.
func (c *loadedConfig) describeLock(p *plugins.Plugin) (string, error) {
	k := c.lock()
	if k.File == "" {
		return "", nil
	}
	f, err := lock.Read(k.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}

	e := f.Named(p.Manifest.Name)
	if e == nil {
		return "not accepted by " + k.File, nil
	}
	have, err := p.Entry(k.File)
	switch {
	case err != nil:
		return "", err
	case have.Module != e.Module:
		return "to another module, " + e.Module, nil
	case have.Sidecar != e.Sidecar:
		return "to this module with another manifest next to it", nil
	}
	return "to this plugin", nil
}
