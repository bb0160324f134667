package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

func pinCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "pin PLUGIN",
		Short: "Load a plugin of this name only as it is now",
		Long: `Load a plugin of this name only as it is now: the same file, and the same manifest
beside it if it has its manifest from there. Grants go by the name of a plugin,
which any file in its folder can give itself. A file that is not what is pinned
is a problem until it is pinned in its turn. Pins are kept in the data folder, and
a server that watches its plugins follows them.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.pinPlugin(cmd, args[0]) },
	}
}

func unpinCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "unpin PLUGIN",
		Short: "Load a plugin of this name whatever it is",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := a.cacheDir(); err != nil { // the data folder is looked at
				return err
			}
			switch err := plugins.RemovePin(a.pinDir(), args[0]); {
			case errors.Is(err, fs.ErrNotExist):
				return &usageError{fmt.Errorf("the plugin %q is not pinned", args[0]), "toolhost list shows which are"}
			case err != nil:
				return err
			}
			a.printf("no longer pinned: %s\n", args[0])
			return nil
		},
	}
}

// pinDir is where pins are kept.
func (a *app) pinDir() string { return filepath.Join(a.config.data, "pins") }

// pinPlugin pins the plugin of a name that would be loaded if nothing was pinned.
func (a *app) pinPlugin(cmd *cobra.Command, name string) error {
	cfg, err := a.serverConfig(nil)
	if err != nil {
		return err
	}
	dir := cfg.PinDir
	cfg.PinDir = ""
	s, err := server.Open(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer a.closeService(cmd.Context(), s)

	for _, p := range s.Plugins() {
		if p.Manifest.Name != name {
			continue
		}
		pin, err := p.Pin()
		if err != nil {
			return fmt.Errorf("%s: %w", p.File, err)
		}
		if err := plugins.WritePin(dir, name, pin); err != nil {
			return err
		}
		a.printf("pinned %s to %s: %s, granted %s\n", name, pin.Digest, oneLine(p.File), dash(oneLine(strings.Join(p.Grant.Names(), ", "))))
		return nil
	}

	a.warnOf(fileProblems(s.Problems())) // it may be among them
	return &usageError{fmt.Errorf("no plugin %q in %s", name, strings.Join(a.config.plugins, ", ")), "toolhost list shows the plugins"}
}

// describePin says what the name of a plugin is pinned to; empty if to nothing.
func (a *app) describePin(p *plugins.Plugin) (string, error) {
	want, err := plugins.ReadPin(a.pinDir(), p.Manifest.Name)
	if err != nil || want == nil {
		return "", err
	}
	have, err := p.Pin()
	switch {
	case err != nil:
		return "", err
	case have == *want:
		return "to this plugin", nil
	case have.Digest == want.Digest:
		return "to this file with another manifest beside it", nil
	}
	return "to another file, sha256 " + want.Digest, nil
}
