package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

// removePlugin deletes the files of a plugin. The module comes first, so that no server
// sees the module without its manifest.
func (a *app) removePlugin(ctx context.Context, name string, dry bool) error {
	module, err := a.findPlugin(ctx, name)
	if err != nil {
		return err
	}
	files := pluginFiles(module)
	if dry {
		return a.answerRemoved("would_remove", files)
	}

	var removed []string
	for _, file := range files {
		if failed := os.Remove(file); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		removed = append(removed, file)
	}
	if _, granted := a.config.grants[name]; granted {
		a.notef("toolhost: the configuration still has grants.%s: remove it there", name)
	}
	return errors.Join(a.answerRemoved("removed", removed), err)
}

// pluginFiles returns those files of a plugin that exist: its module, the manifests next to
// it, and their signatures.
func pluginFiles(module string) (files []string) {
	dir, base := filepath.Split(module)
	for _, name := range append([]string{base}, plugins.Sidecars(os.DirFS(cmp.Or(dir, ".")), base)...) {
		for _, ending := range []string{"", signature.MinisignEnding, signature.BundleEnding} {
			file := filepath.Join(dir, name+ending)
			if _, err := os.Lstat(file); err == nil {
				files = append(files, file)
			}
		}
	}
	return files
}

// answerRemoved says what was removed.
func (u *ui) answerRemoved(did string, what []string) error {
	return u.answer(map[string][]string{did: what}, nil, func() {
		for _, one := range what {
			u.printf("%s: %s\n", strings.ReplaceAll(did, "_", " "), oneLine(one))
		}
	})
}

// findPlugin returns the module of a plugin in a folder. A plugin that cannot be loaded, or
// has no module, is known by the name of its file.
func (a *app) findPlugin(ctx context.Context, name string) (string, error) {
	named, all, err := a.namedPlugins(ctx)
	if err != nil {
		return "", err
	}
	var modules []string
	if p := named[name]; p != nil {
		modules = append(modules, filepath.Clean(p.File))
	}
	own := a.config.ownFolders()
	for _, folder := range own {
		module := filepath.Join(folder, name+".wasm")
		if !slices.Contains(modules, module) && !slices.Contains(all, module) && len(pluginFiles(module)) > 0 {
			modules = append(modules, module)
		}
	}

	inFolder := func(module string) bool {
		return slices.ContainsFunc(own, func(folder string) bool { return filepath.Clean(folder) == filepath.Dir(module) })
	}
	switch {
	case len(modules) == 0:
		return "", &hintError{fmt.Errorf("%s: %w", name, errNoPlugin), nearestPlugin(name, slices.Sorted(maps.Keys(named)))}
	case named[name] != nil && named[name].Pack && len(modules) == 1:
		return "", &usageError{fmt.Errorf("%s belongs to the starter pack", name), "set starter to a list of those that you want"}
	case !inFolder(modules[0]):
		return "", &usageError{fmt.Errorf("%s comes from %s, not from a folder", name, modules[0]), "remove it from plugins in the configuration"}
	case len(modules) > 1:
		return "", &usageError{fmt.Errorf("%s may be %s", name, strings.Join(modules, " or ")), "rename one of the files"}
	}
	return modules[0], nil
}

// namedPlugins returns the loaded plugins by name, and the files of all plugins.
func (a *app) namedPlugins(ctx context.Context) (named map[string]*plugins.Plugin, files []string, err error) {
	named = map[string]*plugins.Plugin{}
	err = a.withHost(ctx, func(h *host.Host, cacheDir string) error {
		all, err := plugins.Open(ctx, h, a.config.pluginsConfig(cacheDir, a.config.folders()...))
		if err != nil {
			return err
		}
		defer all.Close(context.WithoutCancel(ctx))

		for _, p := range all.Plugins() {
			named[p.Manifest.Name] = p
			files = append(files, filepath.Clean(p.File))
		}
		return nil
	})
	return named, files, err
}

// errNoPlugin is the error for a name that no plugin has.
var errNoPlugin = errors.New("no such plugin")

// nearestPlugin says which plugin may be meant, how to build it, or how to list all plugins.
func nearestPlugin(name string, names []string) string {
	if near := abi.Nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return "toolhost build " + name + " makes the plugin of a project"
	}
	return "toolhost list shows the plugins"
}
