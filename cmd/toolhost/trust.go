package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/internal/owned"
)

func trustCommand(a *app) *cobra.Command {
	var revoke bool
	cmd := &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Let the configuration of this folder, or FILE, take effect as it is now",
		Long: `Let the configuration of this folder, or FILE, take effect as it is now, whenever
a command runs in its folder. It shows every setting in the file. When the file
changes it is ignored until it is trusted again.

A configuration decides which plugins run, what they may touch and which server
this command talks to. So one in a working directory, which may be a checkout
that somebody else wrote, is ignored until it is trusted. The configuration of
your own, and a file named by --config or TOOLHOST_CONFIG, need no trust.`,
		Args:              cobra.MaximumNArgs(1),
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // what is in force does not matter
		RunE: func(_ *cobra.Command, args []string) error {
			store := trustStore(userData())
			if store == "" {
				return &usageError{errors.New("no folder to keep in what is trusted"), "set HOME, or XDG_DATA_HOME, to an absolute path"}
			}
			if revoke {
				return a.revokeTrust(store, args)
			}
			return a.trustFile(store, args)
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke", false, "let it take effect no more")
	return cmd
}

// trustFile shows what is in a file, and trusts it.
func (a *app) trustFile(store trustStore, args []string) error {
	name, err := fileToTrust(args)
	if err != nil {
		return err
	}
	path, err := realPath(name)
	if err != nil {
		return &usageError{fmt.Errorf("%s: %w", name, unpath(err)), ""}
	}
	data, err := readConfig(path)
	if err != nil {
		return &usageError{fmt.Errorf("%s: %w", name, err), ""}
	}

	var c loaded
	k, err := parseConfig(path, data)
	if err != nil {
		return &usageError{fmt.Errorf("%s: %s", name, flat(err)), "nothing is trusted that cannot be shown"}
	}
	c.merged = k
	a.printFile(c.set())
	if names := ownGrants(); k.Exists("plugins") && len(names) > 0 {
		a.printf("its plugins also have what your own configuration grants to the names %s\n", oneLine(strings.Join(names, ", ")))
	}

	if err := store.add(path, data); err != nil {
		return err
	}
	a.printf("trusted until it changes: %s\n", oneLine(path))
	return nil
}

// ownGrants are the names of plugins that the user's own configuration grants
// something.
func ownGrants() []string {
	c := loaded{merged: koanf.New(delim)}
	c.addUserFile()
	return c.merged.MapKeys("grants")
}

// printFile prints the settings of a file.
func (a *app) printFile(settings []shown) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	for _, s := range settings {
		fmt.Fprintf(w, "%s\t%s\n", oneLine(s.Key), oneLine(s.text()))
	}
	_ = w.Flush()
	a.print(table.String())
}

// fileToTrust is the file of the arguments, or the one of this folder.
func fileToTrust(args []string) (string, error) {
	if len(args) == 1 {
		if !slices.Contains(configNames, filepath.Base(args[0])) {
			return "", &usageError{
				fmt.Errorf("%s is not read unless it is named: only %s are looked for in a working directory", args[0], strings.Join(configNames, ", ")),
				"name it with --config, which needs no trust",
			}
		}
		return args[0], nil
	}

	var here []string
	for _, name := range configNames {
		if exists(name) {
			here = append(here, name)
		}
	}
	switch len(here) {
	case 0:
		return "", &usageError{fmt.Errorf("this folder has no %s", strings.Join(configNames, ", ")), "name a file: toolhost trust FILE"}
	case 1:
		return here[0], nil
	}
	return "", &usageError{fmt.Errorf("more than one configuration: %s", strings.Join(here, ", ")), "name one: toolhost trust FILE"}
}

// revokeTrust forgets a file, or all those of this folder, which need not be
// there any more.
func (a *app) revokeTrust(store trustStore, args []string) error {
	names := configNames
	if len(args) == 1 {
		names = args
	}

	revoked := 0
	for _, name := range names {
		path, err := realPath(name)
		if err != nil {
			return &usageError{fmt.Errorf("%s: %w", name, unpath(err)), ""}
		}
		switch err := os.Remove(store.record(path)); {
		case err == nil:
			revoked++
			a.printf("no longer trusted: %s\n", oneLine(path))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if revoked == 0 {
		a.notef("toolhost: nothing to revoke: %s was not trusted", strings.Join(names, ", "))
	}
	return nil
}

// realPath is the one path of a file that all names of its folder lead to. The
// file itself may be a link: the paths in it are relative to where that is.
func realPath(name string) (string, error) {
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(name)), nil
}

// trustStore is the folder of this user for data, where the digests of trusted
// files are kept by path: a copy elsewhere is not trusted, as the paths in it
// lead elsewhere. It does not follow the setting `data`, which such a file has.
type trustStore string

func (s trustStore) folder() string { return filepath.Join(string(s), "trusted") }

// record is the file about the file of a path.
func (s trustStore) record(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(s.folder(), hex.EncodeToString(sum[:]))
}

func (s trustStore) line(path string, data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%x  %s\n", sum, path) // as sha256sum writes it
}

func (s trustStore) add(path string, data []byte) error {
	if err := os.MkdirAll(s.folder(), 0o700); err != nil {
		return err
	}
	if err := owned.Folder(s.folder()); err != nil {
		return &usageError{err, ""}
	}
	return owned.WriteFile(s.record(path), []byte(s.line(path, data)))
}

// Why a file is not trusted.
var (
	errUntrusted = errors.New("is not trusted")
	errChanged   = errors.New("has changed since it was trusted")
)

// check returns errUntrusted or errChanged, or another error if it cannot be
// known whether a file is trusted.
func (s trustStore) check(path string, data []byte) error {
	if s == "" {
		return errUntrusted
	}
	line, err := []byte(nil), owned.Folder(s.folder())
	if err == nil {
		line, err = owned.ReadFile(s.record(path))
	}

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errUntrusted
	case err != nil:
		return err
	case string(line) != s.line(path, data):
		return errChanged
	}
	return nil
}

// ignoredFile is a configuration in the working directory that does not take
// effect.
type ignoredFile struct {
	path string
	err  error
}

func (f *ignoredFile) String() string {
	path := oneLine(f.path)
	if errors.Is(f.err, errUntrusted) || errors.Is(f.err, errChanged) {
		return fmt.Sprintf("ignored %s, which %v: read it, then run toolhost trust", path, f.err)
	}
	return fmt.Sprintf("ignored %s, which cannot be trusted: %v", path, oneLine(f.err.Error()))
}

// trustedFile reads the trusted configuration of the working directory. Of the
// others nothing but the digest matters, and they are noted. The user's own
// folder has none: it was read before.
func (c *loaded) trustedFile(own string) (name string, data []byte, err error) {
	var trusted []string
	for _, candidate := range configNames {
		path, err := realPath(candidate)
		if err != nil || !exists(candidate) || sameFolder(filepath.Dir(path), own) {
			continue
		}

		text, err := readConfig(candidate)
		if err == nil {
			err = trustStore(userData()).check(path, text)
		}
		if err != nil {
			c.ignored = append(c.ignored, &ignoredFile{path, err})
			continue
		}
		trusted = append(trusted, candidate)
		name, data = candidate, text
	}

	if len(trusted) > 1 {
		return "", nil, errors.New(manyConfigs(trusted))
	}
	return name, data, nil
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil || b == "" {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
