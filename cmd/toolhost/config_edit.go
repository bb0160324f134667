package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/internal/document"
	"github.com/toolhost/toolhost/internal/owned"
)

// configEditor edits the file of a configuration.
type configEditor struct{ *app }

// file returns the file to which a source of plugins is added: the file that lists the
// other sources, or else the file that was read last, or else the user's own. trusted
// reports whether the file is in force because it is trusted.
func (e configEditor) file() (name string, trusted bool, err error) {
	c := e.config
	v, set := c.values["plugins"]
	switch {
	case set && v.from == byHand:
		return "", false, &usageError{fmt.Errorf("plugins is set by %s, which overrides files", v.source), "add it there, or unset that first"}
	case set:
		name = v.source
	case len(c.files) > 0:
		name = c.files[len(c.files)-1]
	default:
		dir := userConfig()
		if dir == "" {
			return "", false, &usageError{errors.New("no configuration: no home folder is known"), "name one with --config"}
		}
		return filepath.Join(dir, configNames[0]), false, nil
	}
	own := userConfig() != "" && filepath.Dir(name) == userConfig()
	return name, !own && namedConfig(e.flags, e.environ) == "", nil
}

// add adds a source to the configuration, and returns the file. If the starter pack was in
// use, it stays in use. If the file cannot be changed, the error says what to add by hand.
func (e configEditor) add(source string) (string, error) {
	name, trusted, err := e.file()
	if err != nil {
		return "", err
	}
	byHand := func(why error) error {
		return &usageError{fmt.Errorf("%s: %w", name, why), "add to plugins: " + source}
	}
	if ending := filepath.Ext(name); ending != ".yaml" && ending != ".yml" {
		return "", byHand(errors.New("only configurations in YAML are changed"))
	}

	data, err := readConfig(name, nil)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = nil, os.MkdirAll(filepath.Dir(name), 0o700)
	}
	if err != nil {
		return "", err
	}
	edited, err := document.AppendYAML(data, "plugins", source)
	keepStarter := e.config.starter == nil && len(e.config.starters()) > 0
	if err == nil && keepStarter {
		edited = append(bytes.TrimRight(edited, "\n"), "\nstarter: true\n"...)
		_, err = document.Decode(".yaml", edited)
	}
	if err != nil {
		return "", byHand(err)
	}

	to, err := filepath.EvalSymlinks(name) // keeps a link a link
	if err != nil {
		to = name
	}
	if err := rewrite(to, edited); err != nil {
		return "", err
	}
	if keepStarter {
		e.notef("toolhost: set starter to true, which keeps the starter pack next to what you add")
	}
	if !trusted {
		return name, nil
	}
	var locked []byte
	path, err := realPath(name)
	if err == nil {
		locked, err = lockBeside(path)
	}
	if err == nil {
		err = trustStore(userData()).add(path, edited, locked) // the user trusted the rest, and has just requested this
	}
	return name, err
}

// rewrite replaces a file and keeps its permissions. A new file is accessible to this user
// only.
func rewrite(name string, data []byte) error {
	perm := fs.FileMode(0o600)
	if info, err := os.Stat(name); err == nil {
		perm = info.Mode().Perm()
	}
	return owned.Replace(name, data, perm)
}
