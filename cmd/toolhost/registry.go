package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/internal/signature"
	"github.com/toolhost/toolhost/plugins"
)

// store returns the store for plugins from registries.
func (c *config) store() *registry.Store { return registry.NewStore(filepath.Join(c.data, "store")) }

// references returns the references to registries in the configuration.
func (c *config) references() (refs []registry.Reference) {
	for _, source := range c.plugins {
		if ref, err := registry.ParseReference(source); err == nil && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// registries pulls plugins from registries into the store.
type registries struct {
	*app
	client *registry.Client
}

// openRegistries prepares access to registries, with the credentials stored by Docker.
func openRegistries(a *app) (*registries, error) {
	if _, err := a.config.cacheDir(); err != nil { // checks the data folder
		return nil, err
	}
	credential, err := registry.DockerCredentials()
	if err != nil {
		return nil, &usageError{err, "repair the file, or set DOCKER_CONFIG to another folder"}
	}
	return &registries{a, &registry.Client{
		Store: a.config.store(), PlainHTTP: a.config.plainHTTP, Credential: credential,
		Attachments: signatureTypes, Prefer: a.config.isTrusted,
	}}, nil
}

// signatureTypes maps the file name endings of signatures to their media types in
// registries. The one for minisign is not standardized.
var signatureTypes = map[string]string{
	signature.MinisignEnding: "application/vnd.minisign.signature.v1",
	signature.BundleEnding:   "application/vnd.dev.sigstore.bundle.v0.3+json",
}

// isTrusted reports whether a signature of a module is by a signer that trust lists, for
// any plugin.
func (c *config) isTrusted(ending string, module, document []byte) bool {
	anywhere := signature.Policy{Rules: slices.Clone(c.trust.Rules), Bundles: c.trust.Bundles}
	for i := range anywhere.Rules {
		anywhere.Rules[i].Sources = nil
	}
	signer, err := anywhere.Signer("", []signature.File{{Name: "plugin.wasm", Data: module}}, func(name string) ([]byte, error) {
		if name == "plugin.wasm"+ending {
			return document, nil
		}
		return nil, fs.ErrNotExist
	})
	return err == nil && signer != signature.Signer{}
}

func pullCommand(a *app) *cobra.Command {
	var prune bool
	cmd := &cobra.Command{
		Use:   "pull",
		Short: "Fetch the plugins of registries that the configuration names",
		Long: `Fetch the plugins of registries that the configuration names and that are not in
the data folder yet. A server then starts without a network: no command except add,
pull, push and update asks a registry.

With a toolhost.lock the versions that it accepts are fetched. Without one a tag that
was pulled stays what it was, whatever the registry has now. toolhost update shows what
has changed, and asks. If trust names signers, the command also fetches their signatures
of what is there already, unless the lock has the plugin as unsigned.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return pullPlugins(cmd.Context(), a, prune) },
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "also remove what was pulled and is not in this configuration")
	return cmd
}

// pullPlugins fetches what is missing in the store. It tries all plugins before it fails.
func pullPlugins(ctx context.Context, a *app, prune bool) error {
	r, err := openRegistries(a)
	if err != nil {
		return err
	}
	refs := a.config.references()
	if len(refs) == 0 {
		a.notef("toolhost: the configuration names no plugin of a registry: toolhost add oci://HOST/NAME:TAG adds one")
	}

	accepted, err := a.config.readLock()
	if err != nil {
		return err
	}

	var failed error
	for _, ref := range refs {
		at, unsigned := locked(accepted, ref)
		if err := r.pullOne(ctx, ref, at, unsigned); err != nil {
			a.fail(diagnose(ctx, err))
			failed = err
		}
	}
	if failed != nil {
		return &reportedError{failed}
	}
	if prune {
		return r.prune(refs)
	}
	return nil
}

// pullOne fetches the accepted version of a reference, or else the version that the
// reference currently names. If that version is already in the store, pullOne fetches only
// signatures by trusted signers, unless the plugin was accepted unsigned.
func (r *registries) pullOne(ctx context.Context, ref, accepted registry.Reference, unsigned bool) error {
	had, err := r.client.Store.Find(ref)
	if err == nil {
		_, err = r.client.Store.Module(had)
	}
	if err == nil && (accepted.Digest == "" || accepted.Digest == had.Digest) {
		r.printf("%s is here: %s\n", ref, had.Digest)
		if !unsigned {
			r.pullSignatures(ctx, ref, had)
		}
		return nil
	}

	if accepted.Digest == "" && had.Digest != "" { // it is damaged
		accepted = ref.At(had.Digest)
	}
	got, err := r.client.Pull(ctx, accepted)
	if err == nil {
		err = r.client.Store.Name(ref, got)
	}
	if err != nil {
		return err
	}
	r.printf("pulled %s: %s, %s\n", ref, got.Digest, human.Bytes(got.Size))
	return nil
}

// pullSignatures fetches signatures by trusted signers that were added to a stored plugin
// since it was pulled. Without a network connection it changes nothing.
func (r *registries) pullSignatures(ctx context.Context, ref registry.Reference, had registry.Artifact) {
	now, err := r.client.PullAttached(ctx, ref, had)
	if err == nil && !maps.Equal(now.Attached, had.Attached) {
		if err = r.client.Store.Name(ref, now); err == nil {
			r.printf("%s has a new signature\n", ref)
		}
	}
	if err != nil {
		r.notef("toolhost: new signatures were not fetched: %s", oneLine(err.Error()))
	}
}

// prune removes everything from the store that the configuration does not refer to.
func (r *registries) prune(refs []registry.Reference) error {
	keep := map[string]bool{}
	for _, ref := range refs {
		if found, err := r.client.Store.Find(ref); err == nil {
			keep[found.Source] = true
			keep[ref.At(found.Digest).String()] = true
		}
	}
	cleaned, err := r.client.Store.Clean(func(found registry.Artifact) bool { return keep[found.Source] })
	for _, source := range cleaned.Sources {
		r.printf("removed %s\n", source)
	}
	if err == nil && cleaned.Bytes > 0 {
		r.printf("%s are free\n", human.Bytes(cleaned.Bytes))
	}
	return err
}

// pluginsConfig returns the configuration for loading folders of plugins in the same way as
// a server.
func (c *config) pluginsConfig(cacheDir string, folders ...plugins.Folder) plugins.Config {
	cfg := plugins.Config{Folders: folders, Grants: c.server.Grants, CacheDir: cacheDir}
	if len(c.trust.Rules) > 0 {
		cfg.Verifier = &c.trust
	}
	return cfg
}

// loadStored loads a plugin from the store, with the grants for its name.
func (r *registries) loadStored(ctx context.Context, ref registry.Reference) (p *plugins.Plugin, err error) {
	return r.loadFile(ctx, plugins.Single(ref.String(), r.config.store().FS(ref), ""), ref.Name()+".wasm")
}

// loadFile loads one plugin from a folder.
func (a *app) loadFile(ctx context.Context, folder plugins.Folder, file string) (p *plugins.Plugin, err error) {
	err = a.withHost(ctx, func(h *host.Host, cacheDir string) error {
		var problems []plugins.Problem
		p, problems, err = plugins.Load(ctx, h, a.config.pluginsConfig(cacheDir, folder), file)
		if err != nil {
			return fmt.Errorf("%s: %w", folder.Path, err)
		}
		a.warnOf(fileProblems(problems))
		return nil
	})
	return p, err
}

// withHost calls do with a temporary host.
func (a *app) withHost(ctx context.Context, do func(h *host.Host, cacheDir string) error) error {
	cfg := a.config.server.Host
	cfg.Logger = a.logger()
	var err error
	if cfg.CacheDir, err = a.config.cacheDir(); err != nil {
		return err
	}
	h, err := host.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer h.Close(context.WithoutCancel(ctx))
	return do(h, cfg.CacheDir)
}

// printStored shows a plugin from a registry, and its needs.
func (r *registries) printStored(p *plugins.Plugin, found registry.Artifact) {
	m := p.Manifest
	r.printf("%s %s: %s\n", m.Name, m.Version, oneLine(m.Description))
	rows := [][]string{
		{"digest", string(found.Digest)},
		{"module", fmt.Sprintf("%s, %s", found.Module, human.Bytes(found.Size))},
		{"needs", needs(m)},
	}
	for _, t := range m.Tools {
		rows = append(rows, []string{"tool", fmt.Sprintf("%s: %s (%s)", abi.AgentName(m.Name, t.Name), short(t.Description, 100), strings.TrimSpace(hints(t.Hints, declared(t.Hints, m), t.Approval, false)))})
	}
	r.table(rows)
}
