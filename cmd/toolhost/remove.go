package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/signature"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

func removeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID… | --plugin NAME",
		Short: "Remove ended background runs, schedules, or a plugin",
		Long: `Remove background runs of a server that have ended, with their output and results.

With the id of a schedule, the schedule is removed for good. Runs that it has
started continue, and stay. To have a schedule only pause, use toolhost stop.

With --plugin, the file of a plugin is deleted, with the manifest and the signatures
next to it. A running server no longer serves it. Its grants stay in the configuration,
and what it has stored stays in the data folder.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("plugin") {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.RangeArgs(1, 20)(cmd, args)
		},
	}
	cmd.Flags().Bool("dry-run", false, "remove nothing; print what would be removed")
	cmd.Flags().String("plugin", "", "`name` of a plugin to delete from its folder")

	a.remote(cmd, func(ctx context.Context, r *remote, ids []string) error { return r.removeAll(ctx, cmd, ids) })
	removeRuns := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if !cmd.Flags().Changed("plugin") {
			return removeRuns(cmd, ids)
		}
		if cmd.Flags().Changed("addr") || cmd.Flags().Changed("session") {
			return &usageError{errors.New("a plugin is removed from a folder, not from a server"), "leave out --addr and --session"}
		}
		name, _ := cmd.Flags().GetString("plugin")
		dry, _ := cmd.Flags().GetBool("dry-run")
		return a.removePlugin(cmd.Context(), name, dry)
	}
	return cmd
}

// removeAll removes runs and schedules.
func (r *remote) removeAll(ctx context.Context, cmd *cobra.Command, ids []string) error {
	for _, id := range ids {
		if !wire.IsRunID(id) && !wire.IsScheduleID(id) {
			return &usageError{fmt.Errorf("%q is not the id of a run or a schedule", id), "toolhost tasks and toolhost schedules show the ids; --plugin deletes a plugin"}
		}
	}
	did := "removed"
	if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
		did = "would_remove"
	}
	for i, id := range ids {
		if err := r.remove(ctx, id); err != nil {
			for _, gone := range ids[:i] {
				r.notef("toolhost: %s: %s", strings.ReplaceAll(did, "_", " "), gone)
			}
			return err
		}
	}
	return r.answerRemoved(did, ids)
}

// remove removes a run or a schedule.
func (r *remote) remove(ctx context.Context, id string) error {
	if wire.IsScheduleID(id) {
		_, err := r.client.Schedules().Remove(ctx, id)
		return err
	}
	return r.client.RemoveRun(ctx, id)
}

// removePlugin deletes the files of a plugin: first the module, so that no server sees it
// without its manifest.
func (a *app) removePlugin(ctx context.Context, name string, dry bool) error {
	file, err := a.findPlugin(ctx, name)
	if err != nil {
		return err
	}
	dir, module := filepath.Split(file)
	own := append([]string{module}, plugins.Sidecars(os.DirFS(dir), module)...)
	for _, name := range slices.Clone(own) {
		for _, ending := range []string{signature.MinisignEnding, signature.BundleEnding} {
			if _, err := os.Lstat(filepath.Join(dir, name+ending)); err == nil {
				own = append(own, name+ending)
			}
		}
	}
	for i := range own {
		own[i] = filepath.Join(dir, own[i])
	}
	if dry {
		return a.answerRemoved("would_remove", own)
	}

	for _, file := range own {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if _, granted := a.config.grants[name]; granted {
		a.notef("toolhost: the configuration still has grants.%s: remove it there", name)
	}
	return a.answerRemoved("removed", own)
}

// answerRemoved says what was removed.
func (u *ui) answerRemoved(did string, what []string) error {
	return u.answer(map[string][]string{did: what}, nil, func() {
		for _, one := range what {
			u.printf("%s: %s\n", strings.ReplaceAll(did, "_", " "), oneLine(one))
		}
	})
}

// findPlugin returns the file of a plugin in a folder of the configuration. A plugin that
// cannot be loaded goes by the name of its file.
func (a *app) findPlugin(ctx context.Context, name string) (file string, err error) {
	folders := a.config.folders()
	if len(folders) == 0 {
		return "", errNoFolder
	}

	var found *plugins.Plugin
	var names []string
	err = a.withHost(ctx, func(h *host.Host, cacheDir string) error {
		all, err := plugins.Open(ctx, h, a.config.pluginsConfig(cacheDir, folders...))
		if err != nil {
			return err
		}
		defer all.Close(context.WithoutCancel(ctx))

		for _, p := range all.Problems() {
			if filepath.Base(p.File) == name+".wasm" {
				file = p.File
			}
		}
		for _, p := range all.Plugins() {
			names = append(names, p.Manifest.Name)
			if p.Manifest.Name == name {
				found, file = p, p.File
			}
		}
		return nil
	})
	inFolder := slices.ContainsFunc(a.config.plugins, func(folder string) bool { return filepath.Clean(folder) == filepath.Dir(file) })
	switch {
	case err != nil || inFolder:
		return file, err
	case file == "":
		return "", &hinted{fmt.Errorf("%s: %w", name, errNoPlugin), nearestPlugin(name, names)}
	case found != nil && found.Pack:
		return "", &usageError{fmt.Errorf("%s belongs to the starter pack", name), "set starter to a list of those that you want"}
	}
	return "", &usageError{fmt.Errorf("%s comes from %s, not from a folder", name, file), "remove it from plugins in the configuration"}
}

// errNoPlugin is the error of a name that no plugin has.
var errNoPlugin = errors.New("no such plugin")

// nearestPlugin says which plugin may be meant, or how to see all.
func nearestPlugin(name string, names []string) string {
	if near := abi.Nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	return "toolhost list shows the plugins"
}
