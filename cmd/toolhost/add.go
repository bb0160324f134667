package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/plugins"
)

func addCommand(a *app) *cobra.Command {
	var f programFlags
	cmd := &cobra.Command{
		Use:   "add oci://HOST/NAME:TAG | FILE.wasm [-- WORD...]",
		Short: "Add a plugin of a registry, a plugin file, or any program",
		Long: `Add a plugin. It is granted nothing: the lines that would grant what it needs are
printed. If there is a toolhost.lock, it accepts the plugin as it is now.

oci://HOST/NAME:TAG is pulled, shown, and added to plugins in the configuration file,
which keeps its comments.

FILE.wasm is copied into a folder of plugins. Without a manifest it has to be a program
for WASI preview 1: the words after -- are its command line, and become its manifest.
The program is tried before it is added, twice: a result that is the same both times
becomes an example for toolhost test, unless the program needs folders.

  {name}            an argument, a string
  {name:integer}    another type: integer, number or boolean
  {name...}         a list: a word for each element, as is -e {name...} or --in={name...}
  {name:stdin}      the text that the program reads
  -v {name:boolean} -v, if the argument is true
  -n {name?}        optional: left out together with the option before it
  {{ and }}         braces`,
		Example: `  toolhost add oci://ghcr.io/acme/web:1.4
  echo 'if true;then echo;fi' | toolhost add shfmt.wasm --example '{"indent":2}' --describe 'indent=spaces per level' -- -i '{indent:integer}' '{text:stdin}'
  toolhost add rg.wasm --folder /work --success 0,1 --example '{"pattern":"x"}' -- -- '{pattern}' .`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, words := args[0], args[1:]
			if cmd.ArgsLenAtDash() < 0 {
				words = nil
			}
			if len(args) > 1 && cmd.ArgsLenAtDash() != 1 {
				return &usageError{fmt.Errorf("unexpected argument %q", args[1]), "write the command line of a program after --"}
			}
			if !strings.Contains(source, "://") {
				return addFile(cmd.Context(), a, source, f, words)
			}
			if words != nil || cmd.Flags().NFlag() > cmd.InheritedFlags().NFlag() {
				return &usageError{errors.New("a plugin of a registry has a manifest"), "leave out the flags and what follows --"}
			}
			return addPlugin(cmd.Context(), a, source)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// addPlugin pulls a plugin and adds it to the configuration.
func addPlugin(ctx context.Context, a *app, source string) error {
	ref, err := registry.ParseReference(source)
	if err != nil {
		return err
	}
	if slices.Contains(a.config.plugins, source) {
		return &usageError{fmt.Errorf("%s is in plugins already", source), "toolhost update shows whether there is a newer one"}
	}
	editor := configEditor{a}
	if _, _, err := editor.file(); err != nil {
		return err
	}
	r, err := openRegistries(a)
	if err != nil {
		return err
	}

	found, p, err := r.fetch(ctx, ref)
	if err != nil {
		return err
	}
	r.printStored(p, found)
	stored := ref.At(found.Digest)
	if err := a.checkFits(ctx, plugins.Single(stored.String(), a.config.store().FS(stored), "")); err != nil {
		return err
	}
	if err := r.client.Store.Name(ref, found); err != nil {
		return err
	}

	name, err := editor.add(source)
	if err != nil {
		return err
	}
	a.printf("added to %s\n", oneLine(name))
	if err := acceptAdded(ctx, a, p.Manifest.Name); err != nil {
		return err
	}
	if lines := a.config.allLines(p); lines != "" {
		a.printf("to grant what it needs, %s\n%s", a.config.addTo(), lines)
	}
	return nil
}

// acceptAdded adds a newly configured plugin to the lock, if there is one.
func acceptAdded(ctx context.Context, a *app, name string) error {
	if f, err := a.config.readLock(); err != nil || f == nil {
		return err
	}
	if err := a.load(a.flags); err != nil {
		return err
	}
	l, done, err := openLock(ctx, a, []string{name})
	if err != nil {
		return err
	}
	defer done()

	if err := l.show(ctx); err != nil {
		return err
	}
	return l.accept()
}

// fetch pulls what a reference currently names into the store, and loads it. It does
// not update the reference.
func (r *registries) fetch(ctx context.Context, ref registry.Reference) (found registry.Artifact, p *plugins.Plugin, err error) {
	digest, err := r.client.Resolve(ctx, ref)
	if err == nil {
		found, err = r.client.Pull(ctx, ref.At(digest))
	}
	if err == nil {
		p, err = r.loadStored(ctx, ref.At(digest))
	}
	return found, p, err
}

// checkFits loads the plugin in a folder together with all other plugins, and returns
// the reason why it would not be loaded, such as a name collision.
func (a *app) checkFits(ctx context.Context, folder plugins.Folder) error {
	return a.withHost(ctx, func(h *host.Host, cacheDir string) error {
		loaded, err := plugins.Open(ctx, h, a.config.pluginsConfig(cacheDir, append(a.config.folders(), folder)...))
		if err != nil {
			return err
		}
		defer loaded.Close(context.WithoutCancel(ctx))

		for _, p := range loaded.Problems() {
			if p.File == folder.Path || strings.HasPrefix(p.File, folder.Path+string(filepath.Separator)) {
				return errors.New(oneLine(p.String()))
			}
		}
		return nil
	})
}
