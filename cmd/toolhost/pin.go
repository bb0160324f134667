package main

import (
	"context"
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
		Short: "Load the plugin of this name only as it is now",
		Long: `Load the plugin of this name only as it is now: the same file, and the same
manifest next to it if it has one. Grants go by the name of a plugin, and any file
can give itself that name. A file other than the pinned one is a problem until it
is pinned. Pins are kept in the data folder, and apply at once to a server that
watches its plugins.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.pinPlugin(cmd.Context(), args[0]) },
	}
}

func unpinCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "unpin PLUGIN",
		Short: "Load the plugin of this name whatever its file is",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := a.cacheDir(); err != nil { // checks the data folder
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

// pinDir is the folder of the pins.
func (a *app) pinDir() string { return filepath.Join(a.config.data, "pins") }

// pinPlugin pins the plugin that would be loaded if nothing was pinned.
func (a *app) pinPlugin(ctx context.Context, name string) error {
	cfg, err := a.serverConfig(nil)
	if err != nil {
		return err
	}
	cfg.PinDir = ""
	s, err := server.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.closeService(ctx, s)

	for _, p := range s.Plugins() {
		if p.Manifest.Name != name {
			continue
		}
		pin, err := p.Pin()
		if err != nil {
			return fmt.Errorf("%s: %w", p.File, err)
		}
		if err := plugins.WritePin(a.pinDir(), name, pin); err != nil {
			return err
		}
		a.printf("pinned %s to %s: %s, granted %s\n", name, pin.Digest, oneLine(p.File), dash(oneLine(strings.Join(p.Grant.Names(), ", "))))
		return nil
	}

	a.warnOf(fileProblems(s.Problems())) // the plugin may be among them
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
		return "to this file with another manifest next to it", nil
	}
	return "to another file, sha256 " + want.Digest, nil
}
