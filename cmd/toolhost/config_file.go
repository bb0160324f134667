package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/internal/document"
	"github.com/toolhost/toolhost/internal/owned"
)

// configNames are the names of configurations. A folder has at most one.
var configNames = []string{"toolhost.yaml", "toolhost.toml", "toolhost.json"}

// userData is the folder of this user for data. It is empty if no home folder is
// known: the working directory may be somebody else's.
func userData() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "toolhost")
	}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "toolhost")
	}
	return ""
}

// userConfig is the folder of this user's own configuration; empty likewise.
func userConfig() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "toolhost")
	}
	if dir, err := os.UserConfigDir(); err == nil && filepath.IsAbs(dir) {
		return filepath.Join(dir, "toolhost")
	}
	return ""
}

// addFiles reads the user's own configuration, and the file that is named, or
// else the trusted one of the working directory. It reports whether it read all.
func (c *loaded) addFiles(flags *pflag.FlagSet, environ []string) bool {
	own, whole := c.addUserFile()

	name := namedConfig(flags, environ)
	data, err := []byte(nil), error(nil)
	if name != "" {
		data, err = readConfig(name)
	} else if name, data, err = c.trustedFile(own); err != nil {
		c.problems = append(c.problems, problem{text: err.Error()})
		return false
	}

	if name == "" {
		return whole
	}
	return c.addFile(namedFile, name, data, err) && whole
}

// namedConfig is the file that a flag or a variable names.
func namedConfig(flags *pflag.FlagSet, environ []string) string {
	if f := flags.Lookup("config"); f != nil && f.Changed {
		return f.Value.String()
	}
	for _, e := range environ {
		if name, ok := strings.CutPrefix(e, "TOOLHOST_CONFIG="); ok && name != "" {
			return name
		}
	}
	return ""
}

// addUserFile reads the user's own configuration, if there is one. It returns the
// folder, and whether nothing failed.
func (c *loaded) addUserFile() (dir string, whole bool) {
	dir = userConfig()
	var found []string
	for _, name := range configNames {
		if name = filepath.Join(dir, name); dir != "" && exists(name) {
			found = append(found, name)
		}
	}

	switch len(found) {
	case 0:
		return dir, true
	case 1:
		data, err := readOwn(found[0])
		return dir, c.addFile(userFile, found[0], data, err)
	}
	c.problems = append(c.problems, problem{text: manyConfigs(found)})
	return dir, false
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

func manyConfigs(names []string) string {
	return fmt.Sprintf("more than one configuration: %s: remove all but one, or choose one with --config", strings.Join(names, ", "))
}

// readOwn reads a file of the user that others cannot have written.
func readOwn(name string) ([]byte, error) {
	if err := owned.Behind(filepath.Dir(name)); err != nil {
		return nil, err
	}
	return readBounded(name, owned.Opened)
}

// readConfig reads a file that anyone may have written.
func readConfig(name string) ([]byte, error) {
	return readBounded(name, func(*os.File) error { return nil })
}

// readBounded reads a file that passes a check, up to the limit of its format. It
// opens the file once, so it reads what was checked.
func readBounded(name string, check func(*os.File) error) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would block
	if err != nil {
		return nil, unpath(err)
	}
	defer file.Close()

	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, unpath(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	if err := check(file); err != nil {
		return nil, err
	}

	data, err := io.ReadAll(io.LimitReader(file, document.MaxSize(name)+1))
	if err != nil {
		return nil, unpath(err)
	}
	if most := document.MaxSize(name); int64(len(data)) > most {
		return nil, fmt.Errorf("the file has more than %d bytes, the limit", most)
	}
	return data, nil
}

// unpath drops the path from an error that is reported with the path.
func unpath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// addFile adds the content of a file, and reports whether it could. Paths in it
// are relative to its folder.
func (c *loaded) addFile(kind layerKind, name string, data []byte, err error) bool {
	var k *koanf.Koanf
	if err == nil {
		k, err = parseConfig(name, data)
	}
	if err != nil {
		c.problems = append(c.problems, problem{key: name, text: flat(err)})
		return false
	}

	c.add(layer{kind, func(string) string { return name }, k})
	return true
}

// parseConfig parses a file, and makes the paths in it absolute or relative to
// the working directory.
func parseConfig(name string, data []byte) (*koanf.Koanf, error) {
	k := koanf.New(delim)
	value, err := document.Decode(name, data)
	if err != nil || value == nil {
		return k, err
	}
	keys, ok := value.(map[string]any)
	if !ok {
		return k, errNoKeys(value)
	}

	rebase(settings(new(config)), keys, func(v any) any {
		if s, ok := v.(string); ok && s != "" && !filepath.IsAbs(s) {
			return filepath.Join(filepath.Dir(name), s)
		}
		return v
	})
	return k, k.Load(confmap.Provider(keys, ""), nil)
}

// flat is an error in one line.
func flat(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
