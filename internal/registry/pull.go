package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
)

// Artifact describes a pulled plugin in the store.
type Artifact struct {
	Source string        `json:"source"` // reference by which the plugin was pulled
	Digest digest.Digest `json:"digest"` // digest of the manifest or index that Source named at the time
	Module digest.Digest `json:"module"` // digest of the WebAssembly module
	Size   int64         `json:"size"`   // size of the module, in bytes
	// Attached maps endings from [Client.Attachments] to the documents, such as signatures,
	// that were attached to the plugin when it was pulled.
	Attached map[string]digest.Digest `json:"attached,omitempty"`
}

// contents returns the digests of all the content that belongs to an artifact.
func (a Artifact) contents() []digest.Digest {
	return append(slices.Collect(maps.Values(a.Attached)), a.Digest, a.Module)
}

// Resolve returns the digest that a reference currently names. It downloads nothing.
func (c *Client) Resolve(ctx context.Context, ref Reference) (digest.Digest, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	_, desc, err := c.resolve(ctx, ref)
	return desc.Digest, failed(ctx, ref, err)
}

// Pull stores the artifact that a reference currently names, and returns it. It does not
// download content that is already stored. Errors are of type [Error]; after an error, the
// store keeps the previous artifact for the reference.
func (c *Client) Pull(ctx context.Context, ref Reference) (Artifact, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	repo, desc, err := c.resolve(ctx, ref)
	if err != nil {
		return Artifact{}, failed(ctx, ref, err)
	}
	a, err := c.untilComplete(func() (Artifact, error) { return c.bring(ctx, repo, ref, desc) })
	return a, failed(ctx, ref, err)
}

// untilComplete stores an artifact again if a concurrent Clean has removed part of it.
func (c *Client) untilComplete(store func() (Artifact, error)) (Artifact, error) {
	for range 5 {
		a, err := store()
		if err != nil || c.Store.complete(a) {
			return a, err
		}
	}
	return Artifact{}, fmt.Errorf("%w: another process removes it: try again", ErrNotStored)
}

// bring stores the content that an artifact is missing, and writes its reference.
func (c *Client) bring(ctx context.Context, repo *remote.Repository, ref Reference, desc ocispec.Descriptor) (Artifact, error) {
	at := ref.At(desc.Digest)
	a, err := c.Store.Find(at)
	var wasm []byte
	if err == nil {
		wasm, err = c.Store.Module(a)
	}
	if errors.Is(err, ErrNotStored) || errors.Is(err, ErrDamaged) || err == nil && !c.Store.complete(a) {
		a, wasm, err = c.download(ctx, repo, at, desc)
	}
	if err == nil {
		a.Attached = nil
		a, err = c.addAttached(ctx, repo, desc, a, wasm, true)
	}
	if err == nil {
		err = c.Store.name(a)
	}
	if err == nil && ref.stored() != at {
		a.Source = ref.String()
		err = c.Store.name(a)
	}
	return a, err
}

// download stores a manifest and its module, and returns the module's bytes as well.
func (c *Client) download(ctx context.Context, repo *remote.Repository, at Reference, desc ocispec.Descriptor) (Artifact, []byte, error) {
	a := Artifact{Source: at.String(), Digest: desc.Digest}
	manifest, document, err := fetchManifest(ctx, repo, desc)
	if err != nil {
		return a, nil, err
	}
	layer, isModule, err := module(manifest)
	if err != nil {
		return a, nil, err
	}

	var wasm []byte
	if isModule {
		wasm, err = fetch(ctx, repo.Blobs(), layer, "the module", MaxModule)
	} else {
		wasm, err = imageModuleOf(ctx, repo.Blobs(), manifest.Layers)
	}
	if err == nil {
		err = checkModule(wasm)
	}
	if err != nil {
		return a, nil, err
	}

	a.Module, a.Size = digest.FromBytes(wasm), int64(len(wasm))
	if err := c.Store.write(document); err != nil {
		return a, nil, err
	}
	return a, wasm, c.Store.write(wasm)
}
