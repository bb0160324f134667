package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/guest"
)

// workspace is the path of the folder in which the plugin works.
type workspace string

// maxFile is the maximum size of a file that is read, in bytes: the plugin has
// little memory, and the model's attention is even shorter.
const maxFile = 1 << 20

type pathArgs struct {
	Path string `json:"path" desc:"Path in the workspace" min:"1"`
}

type folderArgs struct {
	Path string `json:"path" desc:"Folder in the workspace" default:"."`
}

type entry struct {
	Path     string `json:"path"`
	Type     string `json:"type" enum:"file,folder,other"`
	Size     int64  `json:"size" desc:"Bytes, 0 but for files"`
	Modified string `json:"modified" format:"date-time"`
}

type entries struct {
	Entries []entry `json:"entries"`
}

// in opens the workspace, and calls f with a path in it.
func (w workspace) in(p string, f func(root *os.Root, name string) error) error {
	name := p
	if rest, ok := strings.CutPrefix(p, string(w)+"/"); ok {
		name = rest
	}
	if name = path.Clean(name); p == string(w) {
		name = "."
	}
	if !filepath.IsLocal(name) {
		return escapes(p)
	}
	root, err := os.OpenRoot(string(w))
	if err != nil {
		return fmt.Errorf("the workspace is not there: %w", err)
	}
	defer root.Close()
	err = f(root, name)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		if pathErr.Err.Error() == "path escapes from parent" { // package os has no name for it: a link leads out
			return escapes(p)
		}
		return fmt.Errorf("%s: %w", p, pathErr.Err)
	}
	return err
}

//lint:ignore ST1005 the text is older than this plugin: agents know it
func escapes(p string) error { return fmt.Errorf("Path escapes workspace: %s", p) }

// load reads a text file.
func load(root *os.Root, name string) (string, error) {
	info, err := root.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a file", name)
	}
	if info.Size() > maxFile {
		return "", fmt.Errorf("%s: %d bytes, at most %d can be read", name, info.Size(), maxFile)
	}
	data, err := root.ReadFile(name)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%s: not a text in UTF-8", name)
	}
	return string(data), nil
}

func (w workspace) list(_ *guest.Call, in folderArgs) (entries, error) {
	out := entries{Entries: []entry{}}
	err := w.in(in.Path, func(root *os.Root, name string) error {
		found, err := fs.ReadDir(root.FS(), name)
		for _, e := range found {
			if info, err := e.Info(); err == nil { // else it is gone
				out.Entries = append(out.Entries, describe(path.Join(name, e.Name()), info))
			}
		}
		return err
	})
	return out, err
}

func (w workspace) stat(_ *guest.Call, in pathArgs) (out entry, _ error) {
	err := w.in(in.Path, func(root *os.Root, name string) error {
		info, err := root.Stat(name)
		if err == nil {
			out = describe(name, info)
		}
		return err
	})
	return out, err
}

func describe(name string, info fs.FileInfo) entry {
	e := entry{Path: name, Type: "other", Modified: info.ModTime().UTC().Format(time.RFC3339)}
	switch {
	case info.IsDir():
		e.Type = "folder"
	case info.Mode().IsRegular():
		e.Type, e.Size = "file", info.Size()
	}
	return e
}

func (w workspace) remove(_ *guest.Call, in pathArgs) (guest.None, error) {
	return guest.None{}, w.in(in.Path, func(root *os.Root, name string) error {
		if name == "." {
			return errors.New("the workspace itself cannot be deleted")
		}
		return root.Remove(name)
	})
}
