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

	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/internal/document"
	"github.com/toolhost/toolhost/internal/owned"
)

// configNames lists the names that a configuration file can have. A folder has at
// most one such file.
var configNames = []string{"toolhost.yaml", "toolhost.toml", "toolhost.json"}

// userData returns this user's data folder. It is empty if no home folder is known,
// because the working directory may belong to someone else.
func userData() string {
	home, _ := os.UserHomeDir()
	return ownFolder(os.Getenv("XDG_DATA_HOME"), filepath.Join(home, ".local", "share"))
}

// userConfig returns the folder of this user's own configuration. It is empty if no
// home folder is known.
func userConfig() string {
	dir, _ := os.UserConfigDir()
	return ownFolder(os.Getenv("XDG_CONFIG_HOME"), dir)
}

func ownFolder(candidates ...string) string {
	for _, dir := range candidates {
		if filepath.IsAbs(dir) {
			return filepath.Join(dir, "toolhost")
		}
	}
	return ""
}

// addFiles reads the user's own configuration, and then the named file or else the
// trusted file of the working directory. It reports whether it could read all of
// them.
func (c *loadedConfig) addFiles(flags *pflag.FlagSet, environ []string) bool {
	whole := c.addUserFile()
	if name := namedConfig(flags, environ); name != "" {
		return c.addFile(namedFile, []string{name}, nil) && whole
	}
	return c.addTrusted() && whole
}

// namedConfig returns the file named by a flag or a variable.
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

// addUserFile reads the user's own configuration, if there is one.
func (c *loadedConfig) addUserFile() bool {
	var found []string
	if dir := userConfig(); dir != "" {
		found = configsIn(dir)
	}
	return c.addFile(userFile, found, nil)
}

// configsIn returns the configuration files in a folder.
func configsIn(dir string) (found []string) {
	for _, name := range configNames {
		name = filepath.Join(dir, name)
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, name)
		}
	}
	return found
}

// readConfig reads a configuration, up to the size limit for its format. It opens
// the file only once, so that check, unless it is nil, sees the same file.
func readConfig(name string, check func(*os.File) error) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would block
	if err != nil {
		return nil, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil && check != nil {
		err = check(file)
	}
	if err != nil {
		return nil, err
	}

	most := document.MaxSize(name)
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the file has more than %d bytes, the limit", most)
	}
	return data, err
}

// checkOwn returns an error if others can write to or replace a user's own
// configuration file.
func checkOwn(file *os.File) error {
	if err := owned.Behind(filepath.Dir(file.Name())); err != nil {
		return err
	}
	return owned.Opened(file)
}

// addFile adds the content of the file that has one of these names, and reports
// whether it could. There must be only one such file. If contents is not nil, it
// holds the content, and the file itself is not read.
func (c *loadedConfig) addFile(kind sourceKind, names []string, contents map[string][]byte) bool {
	if len(names) == 0 {
		return true
	}
	if len(names) > 1 {
		c.problems = append(c.problems, problem{
			text: fmt.Sprintf("more than one configuration: %s: remove all but one, or choose one with --config", strings.Join(names, ", ")),
		})
		return false
	}

	name := names[0]
	data, err := contents[name], error(nil)
	if contents == nil {
		check := owned.Opened // a configuration can name commands to run
		if kind == userFile {
			check = checkOwn
		}
		data, err = readConfig(name, check)
	}
	var layer map[string]value
	if err == nil {
		layer, err = c.parse(name, data)
	}
	if err != nil {
		c.problems = append(c.problems, problem{key: name, text: flat(err)})
		return false
	}

	c.add(kind, layer)
	c.files = append(c.files, name)
	return true
}

// parse parses a file. Its paths become absolute or relative to the working
// directory.
func (c *loadedConfig) parse(name string, data []byte) (map[string]value, error) {
	raw, err := document.Decode(name, data)
	if _, ok := raw.(map[string]any); err == nil && raw != nil && !ok {
		err = errNoKeys(raw)
	}
	if err != nil {
		return nil, err
	}

	layer := map[string]value{}
	flatten(c.table, raw, "", layer)
	for key, v := range layer {
		if v.source = name; v.kind.paths {
			v.written = asWritten(v.raw)
			v.raw = rebase(v.raw, filepath.Dir(name))
		}
		layer[key] = v
	}
	return layer, nil
}

// asWritten returns the strings in a list, as they are written.
func asWritten(raw any) (all []string) {
	list, _ := raw.([]any)
	for _, item := range list {
		if s, ok := item.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// flat formats an error as one line, without the path that is reported along with
// it.
func flat(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
