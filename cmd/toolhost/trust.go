package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/owned"
)

func trustCommand(a *app) *cobra.Command {
	var revoke bool
	cmd := &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Trust the configuration of this folder, or FILE, as it is now",
		Long: `Trust the configuration of this folder, or FILE, as it is now: it takes effect
whenever a command runs in its folder. The command shows every setting in the
file. When the file, or the toolhost.lock next to it, changes, it is ignored until it
is trusted again.

A configuration decides which plugins run, what they may touch, and which server
the commands talk to. A working directory may be a checkout that somebody else
wrote, so its configuration is ignored until you trust it. Your own configuration
and a file named by --config or TOOLHOST_CONFIG need no trust.`,
		Args:              cobra.MaximumNArgs(1),
		PersistentPreRunE: withoutConfig,
		RunE: func(_ *cobra.Command, args []string) error {
			store := trustStore(userData())
			switch {
			case store == "":
				return &usageError{errors.New("no folder for the records of trusted files"), "set HOME, or XDG_DATA_HOME, to an absolute path"}
			case revoke:
				return store.revoke(&a.ui, args)
			}
			return trustFile(&a.ui, store, args)
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke", false, "stop trusting it")
	return cmd
}

// trustFile shows the content of a file, and records it as trusted.
func trustFile(u *ui, store trustStore, args []string) error {
	name, err := fileToTrust(args)
	if err != nil {
		return err
	}
	var data []byte
	var values map[string]value
	path, err := realPath(name)
	if err == nil {
		data, err = readConfig(path, nil)
	}
	if err == nil {
		values, err = newLoaded().parse(path, data)
	}
	if err != nil {
		return &usageError{fmt.Errorf("%s: %s", name, flat(err)), "a file is trusted only if its settings can be shown"}
	}

	var rows [][]string
	for _, s := range showValues(values) {
		rows = append(rows, []string{oneLine(s.Key), s.text()})
	}
	u.table(rows)

	locked, err := showLock(u, path)
	if err != nil {
		return err
	}
	own := newLoaded()
	own.addUserFile()
	if _, ok := values["plugins"]; ok && len(own.grants) > 0 {
		names := slices.Sorted(maps.Keys(own.grants))
		u.printf("its plugins also get what your own configuration grants to the names %s\n", oneLine(strings.Join(names, ", ")))
	}

	if err := store.add(path, data, locked); err != nil {
		return err
	}
	u.printf("trusted until it changes: %s\n", oneLine(path))
	return nil
}

// showLock shows what is accepted by the lock next to a configuration, and returns the lock's
// content.
func showLock(u *ui, config string) ([]byte, error) {
	text, err := lockBeside(config)
	if err != nil || text == nil {
		return nil, err
	}
	f, err := lock.Parse(text)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s: %w", lock.Name, err), "a file is trusted only together with the lock next to it"}
	}

	var names []string
	for _, p := range f.Plugins {
		names = append(names, p.Name)
	}
	u.printf("%s accepts the plugins %s\n", lock.Name, cmp.Or(strings.Join(names, ", "), "-"))
	return text, nil
}

// lockBeside returns the content of the lock next to a configuration, or nil if there is none.
func lockBeside(config string) ([]byte, error) {
	text, err := lock.ReadBytes(filepath.Join(filepath.Dir(config), lock.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// fileToTrust returns the file named in the arguments, or the one in this folder.
func fileToTrust(args []string) (string, error) {
	names := strings.Join(configNames, ", ")
	here := configsIn(".")
	switch {
	case len(args) == 1 && !slices.Contains(configNames, filepath.Base(args[0])):
		return "", &usageError{fmt.Errorf("only %s are read from a working directory, not %s", names, args[0]), "name it with --config, which needs no trust"}
	case len(args) == 1:
		return args[0], nil
	case len(here) == 0:
		return "", &usageError{fmt.Errorf("this folder has no %s", names), "name a file: toolhost trust FILE"}
	case len(here) > 1:
		return "", &usageError{fmt.Errorf("more than one configuration: %s", strings.Join(here, ", ")), "name one: toolhost trust FILE"}
	}
	return here[0], nil
}

// realPath returns the canonical path of a file, in which the folder contains no links. The file
// itself may be a link: its paths are relative to the link.
func realPath(name string) (string, error) {
	dir, err := filepath.Abs(filepath.Dir(name))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return filepath.Join(dir, filepath.Base(name)), err
}

// trustStore is the path of this user's data folder. It holds the digests of trusted files, and of
// the locks next to them, by path. A copy of a file elsewhere is not trusted, because its relative
// paths lead elsewhere. The setting data has no influence on this folder, because trusted files
// can contain that setting.
type trustStore string

func (s trustStore) folder() string { return filepath.Join(string(s), "trusted") }

// record returns the path of the record for the file at a path.
func (s trustStore) record(path string) string {
	return filepath.Join(s.folder(), fmt.Sprintf("%x", sha256.Sum256([]byte(path))))
}

// line returns a line of a record, in the format of sha256sum.
func line(path string, data []byte) string { return fmt.Sprintf("%x  %s\n", sha256.Sum256(data), path) }

// recorded returns the content of the record for a file and the lock next to it. If there is no
// lock, locked is nil.
func recorded(path string, data, locked []byte) string {
	text := line(path, data)
	if locked != nil {
		text += lockLine(path, locked)
	}
	return text
}

// lockLine returns a record's line for the lock next to a configuration.
func lockLine(config string, locked []byte) string {
	return line(filepath.Join(filepath.Dir(config), lock.Name), locked)
}

// checkLock returns an error unless a lock was trusted together with the configuration next to it.
func (s trustStore) checkLock(config string, locked []byte) error {
	path, err := realPath(config)
	var record []byte
	if err == nil {
		record, err = owned.ReadFile(s.record(path))
	}
	if err == nil && !strings.HasSuffix(string(record), lockLine(path, locked)) {
		err = fmt.Errorf("it is not the one that was trusted with %s: read it, then run toolhost trust", filepath.Base(config))
	}
	return err
}

func (s trustStore) add(path string, data, locked []byte) error {
	if err := os.MkdirAll(s.folder(), 0o700); err != nil {
		return err
	}
	if err := owned.Folder(s.folder()); err != nil {
		return &usageError{err, ""}
	}
	return owned.WriteFile(s.record(path), []byte(recorded(path, data, locked)))
}

// revoke removes the record of a file, or those of all files in this folder. The files need not
// exist.
func (s trustStore) revoke(u *ui, args []string) error {
	names := configNames
	if len(args) == 1 {
		names = args
	}

	revoked := false
	for _, name := range names {
		path, err := realPath(name)
		if err == nil {
			err = os.Remove(s.record(path))
		}
		switch {
		case err == nil:
			revoked = true
			u.printf("no longer trusted: %s\n", oneLine(path))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}

	if !revoked {
		u.notef("toolhost: nothing to revoke: %s was not trusted", strings.Join(names, ", "))
	}
	return nil
}

// check returns the reason why a file is not trusted, or nothing if it is. err is the error of
// reading the file.
func (s trustStore) check(path string, data []byte, err error) (why string) {
	var record, locked []byte
	if err == nil {
		locked, err = lockBeside(path)
	}
	if err == nil && s != "" {
		err = owned.Folder(s.folder())
	}
	if err == nil && s != "" {
		record, err = owned.ReadFile(s.record(path))
	}

	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "cannot be trusted: " + oneLine(flat(err))
	case err != nil || s == "":
		return "is not trusted: read it, then run toolhost trust"
	case string(record) == recorded(path, data, locked):
		return ""
	case strings.HasPrefix(string(record), line(path, data)):
		return "is not trusted with the " + lock.Name + " next to it, which has changed: read that, then run toolhost trust"
	default:
		return "has changed since it was trusted: read it, then run toolhost trust"
	}
}

// ignoredFile is a configuration in the working directory that was ignored.
type ignoredFile struct{ path, why string }

func (f ignoredFile) String() string {
	return fmt.Sprintf("ignored %s, which %s", oneLine(f.path), f.why)
}

// ignoredAs returns the entry for an ignored file.
func (c *loadedConfig) ignoredAs(file string) (ignoredFile, bool) {
	path, err := realPath(file)
	i := slices.IndexFunc(c.ignored, func(f ignoredFile) bool { return err == nil && f.path == path })
	if i < 0 {
		return ignoredFile{}, false
	}
	return c.ignored[i], true
}

// addTrusted reads the trusted configuration in the working directory, and records the others, of
// which it only computes the digest. It skips the user's own folder, because the configuration
// there was read before.
func (c *loadedConfig) addTrusted() bool {
	var trusted []string
	texts := map[string][]byte{}
	own, _ := filepath.EvalSymlinks(userConfig())
	for _, name := range configsIn(".") {
		path, err := realPath(name)
		if err != nil || filepath.Dir(path) == own {
			continue
		}
		data, err := readConfig(name, nil)
		if why := trustStore(userData()).check(path, data, err); why != "" {
			c.ignored = append(c.ignored, ignoredFile{path, why})
			continue
		}
		trusted = append(trusted, name)
		texts[name] = data
	}
	c.trusted = texts

	return c.addFile(namedFile, trusted, texts)
}
