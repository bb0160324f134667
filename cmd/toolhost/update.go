package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/plugins"
)

func updateCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "update [PLUGIN]...",
		Short: "Show what registries have now for the tags of the configuration, and accept it",
		Long: `Ask registries what the tags in plugins name now, all of them or those of the plugins
that are named. The command shows how each new version differs from the one that is
served: the text that models read, hints, needs. If you accept it, it is served, and
toolhost.lock has it if there is one. A server that watches its plugins takes it at
once. It also fetches signatures by trusted signers that were made since the last pull.`,
		Example: `  toolhost update
  toolhost update web --yes`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return updatePlugins(cmd.Context(), a, args, yes) },
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "accept without asking")
	return cmd
}

// newVersion is a version that a tag currently names. It is already in the store, but the tag
// does not lead to it yet.
type newVersion struct {
	ref    registry.Reference
	found  registry.Artifact
	before *plugins.Plugin // nil if the tag was never pulled, or its plugin is damaged
	now    *plugins.Plugin
}

// updatePlugins shows the versions that tags currently name, and accepts them.
func updatePlugins(ctx context.Context, a *app, names []string, yes bool) error {
	r, err := openRegistries(a)
	if err != nil {
		return err
	}
	accepted, err := a.config.readLock()
	if err != nil {
		return err
	}
	updates, err := r.newVersions(ctx, names, accepted != nil)
	if err != nil || len(updates) == 0 {
		return err
	}

	locked, done, err := openUpdates(ctx, a, updates, accepted != nil)
	if err != nil {
		return err
	}
	defer done()
	if locked == nil {
		showUpdates(a, updates)
	} else if err := locked.show(ctx); err != nil {
		return err
	}
	if !yes {
		if err := a.confirm("accept this?"); err != nil {
			return err
		}
	}

	for _, u := range updates {
		if err := r.client.Store.Name(u.ref, u.found); err != nil {
			return err
		}
		a.printf("%s is now %s\n", u.ref, u.found.Digest)
	}
	if locked == nil {
		return nil
	}
	return locked.accept()
}

// newVersions pulls the versions that tags currently name, either for the plugins with these
// names or for all plugins. For a version that is already stored, it pulls new signatures,
// which a lock has to accept.
func (r *registries) newVersions(ctx context.Context, names []string, locks bool) (updates []newVersion, err error) {
	var known []string
	for _, ref := range r.config.references() {
		u := newVersion{ref: ref}
		had, err := r.client.Store.Find(ref)
		if err == nil {
			u.before, err = r.loadStored(ctx, ref)
		}
		if err != nil && !errors.Is(err, registry.ErrNotStored) {
			r.fail(diagnose(ctx, err))
		}
		if u.before != nil {
			known = append(known, u.before.Manifest.Name)
		}
		if len(names) > 0 && (u.before == nil || !slices.Contains(names, u.before.Manifest.Name)) {
			continue
		}

		digest, err := r.client.Resolve(ctx, ref)
		switch {
		case err != nil:
		case digest == had.Digest && u.before != nil:
			err = r.fetchSignatures(ctx, &u, had, locks)
		default:
			u.found, u.now, err = r.fetch(ctx, ref)
		}
		if err != nil {
			return nil, err
		}
		if u.now != nil {
			updates = append(updates, u)
		}
	}

	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, &usageError{fmt.Errorf("no plugin %q is from a registry", name), "toolhost list shows the plugins; toolhost pull fetches missing ones, and toolhost update without a name replaces those that do not load"}
		}
	}
	return updates, nil
}

// fetchSignatures pulls signatures by trusted signers that were added to a version since it
// was pulled. This is an update only if a lock has to accept the new signer.
func (r *registries) fetchSignatures(ctx context.Context, u *newVersion, had registry.Artifact, locks bool) (err error) {
	if u.found, err = r.client.PullAttached(ctx, u.ref, had); err != nil {
		return err
	}
	if maps.Equal(u.found.Attached, had.Attached) {
		r.printf("%s is up to date\n", u.ref)
		return nil
	}

	now, err := r.loadStored(ctx, u.ref.At(had.Digest))
	switch {
	case err != nil:
		return err
	case locks && now.Signer != u.before.Signer:
		u.now = now
		return nil
	}
	r.printf("%s is up to date, and has a new signature\n", u.ref)
	return r.client.Store.Name(u.ref, u.found)
}

// openUpdates compares the new versions with the lock. It returns nil if there is no lock.
func openUpdates(ctx context.Context, a *app, updates []newVersion, locks bool) (*locking, func(), error) {
	none := func() {}
	if !locks {
		return nil, none, nil
	}

	a.config.staged = map[string]registry.Reference{}
	for _, u := range updates {
		a.config.staged[u.ref.String()] = u.ref.At(u.found.Digest)
	}
	l, done, err := openLock(ctx, a, nil)
	if err != nil {
		return nil, none, err
	}
	l.updates = slices.DeleteFunc(l.updates, func(u lockUpdate) bool {
		if u.now == nil {
			return a.config.staged[u.before.Source] == (registry.Reference{})
		}
		return a.config.staged[u.now.Source] == (registry.Reference{})
	})
	return l, done, nil
}

// showUpdates shows how the new versions differ from those in use.
func showUpdates(a *app, updates []newVersion) {
	l := &locking{app: a}
	for i, u := range updates {
		if i > 0 {
			a.printf("\n")
		}
		a.printf("%s %s: %s\n", u.now.Manifest.Name, oneLine(u.now.Manifest.Version), u.ref)
		a.printf("  digest %s\n", u.found.Digest)

		var before lock.Described
		if u.before != nil {
			before = u.before.Described()
		}
		l.showText(lock.Changes(before, u.now.Described()))
	}
}

// readLock returns the current lock, or nil if there is none.
func (c *loadedConfig) readLock() (*lock.File, error) {
	k := c.lock()
	if k.File == "" {
		return nil, nil
	}
	f, err := k.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.File, err)
	}
	return f, nil
}

// locked returns the accepted digest for a reference, or the reference itself. unsigned
// reports whether the lock accepts the plugin as unsigned.
func locked(f *lock.File, ref registry.Reference) (at registry.Reference, unsigned bool) {
	if f == nil {
		return ref, false
	}
	i := slices.IndexFunc(f.Plugins, func(p lock.Plugin) bool { return p.Source == ref.String() })
	if i < 0 {
		return ref, false
	}

	p := f.Plugins[i]
	at, err := registry.ParseReference(registry.Scheme + p.Resolved)
	if err != nil || ref.Digest != "" || at.Registry != ref.Registry || at.Repository != ref.Repository {
		return ref, p.Unsigned
	}
	return at, p.Unsigned
}
