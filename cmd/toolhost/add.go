package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/plugins"
)

func addCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "add oci://HOST/NAME:TAG",
		Short: "Add a plugin of a registry to the configuration",
		Long: `Pull a plugin from a registry, show what it is and what it asks for, and add it to
plugins in the configuration file, which keeps its comments. It is granted nothing:
the lines that would grant what it needs are printed. If there is a toolhost.lock, it
accepts the plugin as it is now.`,
		Example: `  toolhost add oci://ghcr.io/acme/web:1.4`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return addPlugin(cmd.Context(), a, args[0]) },
	}
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
	if err := r.checkFits(ctx, ref.At(found.Digest)); err != nil {
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
	if a.config.starter == nil && len(a.config.plugins) == 0 {
		a.notef("toolhost: the starter pack is no longer served, because plugins are configured: set starter to true to keep it")
	}
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

// fetch pulls what a reference currently names into the store, and loads it, without
// updating the reference.
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

// checkFits loads a plugin together with all others, and returns why it would not be
// loaded, such as a name collision.
func (r *registries) checkFits(ctx context.Context, ref registry.Reference) error {
	return r.withHost(ctx, func(h *host.Host, cacheDir string) error {
		folder := plugins.Single(ref.String(), r.config.store().FS(ref), "")
		loaded, err := plugins.Open(ctx, h, r.config.pluginsConfig(cacheDir, append(r.config.folders(), folder)...))
		if err != nil {
			return err
		}
		defer loaded.Close(context.WithoutCancel(ctx))

		for _, p := range loaded.Problems() {
			if p.File == folder.Path {
				return errors.New(oneLine(p.String()))
			}
		}
		return nil
	})
}
