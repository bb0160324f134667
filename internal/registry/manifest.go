package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
)

// The media types of a plugin in the CNCF's layout, which has a config and one layer.
const (
	configType = "application/vnd.wasm.config.v0+json"
	layerType  = "application/wasm"
)

// moduleTypes lists the media types of a layer that is a module: the current type, and those of
// earlier tools (wasm-to-oci, Istio, runwasi).
var moduleTypes = []string{
	layerType,
	"application/vnd.wasm.content.layer.v1+wasm",
	"application/vnd.module.wasm.content.layer.v1+wasm",
	"application/vnd.w3c.wasm.module.v1+wasm",
}

// The media types of Docker that have OCI equivalents.
const (
	dockerManifest  = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerLayerGzip = "application/vnd.docker.image.rootfs.diff.tar.gzip"
	dockerLayer     = "application/vnd.docker.image.rootfs.diff.tar"
)

var (
	manifestTypes = []string{ocispec.MediaTypeImageManifest, dockerManifest, ocispec.MediaTypeImageIndex, dockerIndex}
	indexTypes    = []string{ocispec.MediaTypeImageIndex, dockerIndex}
	imageTypes    = []string{ocispec.MediaTypeImageLayer, ocispec.MediaTypeImageLayerGzip, dockerLayer, dockerLayerGzip}
)

// Limits on a registry's responses.
const (
	maxManifest  = 1 << 20  // bytes in a manifest or an index
	maxLayers    = 128      // layers in a manifest: images have at most 127
	maxPlatforms = 128      // entries in an index
	maxLayer     = 64 << 20 // bytes in a layer of an image, compressed

	// MaxModule is the maximum size of a module that can be pulled or pushed, in bytes.
	// It equals host.DefaultPluginSize.
	MaxModule = 64 << 20
)

// resolve returns the repository of a reference, and the descriptor of what the reference
// currently names.
func (c *Client) resolve(ctx context.Context, ref Reference) (*remote.Repository, ocispec.Descriptor, error) {
	repo, err := c.repository(ref)
	if err != nil {
		return nil, ocispec.Descriptor{}, err
	}
	desc, err := repo.Resolve(ctx, ref.oras().Reference)
	switch {
	case err != nil:
	case !isSHA256(desc.Digest):
		err = fmt.Errorf("%w: the registry answers %.80q, expected one of SHA-256", ErrDigest, desc.Digest)
	case ref.Digest != "" && desc.Digest != ref.Digest:
		err = fmt.Errorf("%w: asked for %s, and the registry answers %s", ErrDigest, ref.Digest, desc.Digest)
	}
	return repo, desc, err
}

// fetchManifest returns the manifest of a plugin: the one that a descriptor names, or the one for
// WebAssembly in the index that it names. data is the content that the descriptor names.
func fetchManifest(ctx context.Context, repo *remote.Repository, desc ocispec.Descriptor) (m ocispec.Manifest, data []byte, err error) {
	if data, err = fetchDocument(ctx, repo, desc); err != nil {
		return m, nil, err
	}
	if slices.Contains(indexTypes, desc.MediaType) {
		var index ocispec.Index
		if err := decode(data, desc, &index); err != nil {
			return m, nil, err
		}
		one, err := choose(index)
		if err != nil {
			return m, nil, err
		}
		inner, err := fetchDocument(ctx, repo, one)
		if err != nil {
			return m, nil, err
		}
		return m, data, decodeManifest(inner, one, &m)
	}
	return m, data, decodeManifest(data, desc, &m)
}

func decodeManifest(data []byte, desc ocispec.Descriptor, m *ocispec.Manifest) error {
	if err := decode(data, desc, m); err != nil {
		return err
	}
	if m.MediaType != "" && m.MediaType != desc.MediaType {
		return fmt.Errorf("%w: the manifest says that it is %.80q, and the registry that it is %s", ErrNoPlugin, m.MediaType, desc.MediaType)
	}
	if len(m.Layers) > maxLayers {
		return fmt.Errorf("%w: the manifest has %d layers, expected at most %d", ErrTooLarge, len(m.Layers), maxLayers)
	}
	return nil
}

func decode(data []byte, desc ocispec.Descriptor, to any) error {
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%w: the manifest %s is not valid JSON: %w", ErrNoPlugin, desc.Digest, err)
	}
	return nil
}

// fetchDocument fetches and verifies a manifest or an index.
func fetchDocument(ctx context.Context, repo *remote.Repository, desc ocispec.Descriptor) ([]byte, error) {
	if !slices.Contains(manifestTypes, desc.MediaType) {
		return nil, fmt.Errorf("%w: it is %.80q, expected a manifest", ErrNoPlugin, desc.MediaType)
	}
	return fetch(ctx, repo.Manifests(), desc, "the manifest", maxManifest)
}

// A fetcher fetches content: it is the common interface of a repository's manifests and blobs.
type fetcher interface {
	Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error)
}

// fetch fetches and verifies the content of a descriptor, which may have up to most bytes.
func fetch(ctx context.Context, from fetcher, desc ocispec.Descriptor, what string, most int64) ([]byte, error) {
	switch {
	case !isSHA256(desc.Digest):
		return nil, fmt.Errorf("%w: %s is %.80q, expected one of SHA-256", ErrDigest, what, desc.Digest)
	case desc.Size < 0:
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrSize, what, desc.Size)
	case desc.Size > most:
		return nil, fmt.Errorf("%w: %s has %d bytes, expected at most %d", ErrTooLarge, what, desc.Size, most)
	}

	body, err := from.Fetch(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var data bytes.Buffer // grows with the received bytes, not the announced ones
	n, err := io.Copy(&data, io.LimitReader(body, desc.Size+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || err == nil && n < desc.Size:
		return nil, fmt.Errorf("%w: %s %s ends after %d bytes of %d", ErrSize, what, desc.Digest, n, desc.Size)
	case err != nil:
		return nil, err
	case n > desc.Size:
		return nil, fmt.Errorf("%w: %s %s has more than the %d bytes that were announced", ErrSize, what, desc.Digest, desc.Size)
	}
	if have := digest.FromBytes(data.Bytes()); have != desc.Digest {
		return nil, fmt.Errorf("%w: %s is to be %s, and the registry sends %s", ErrDigest, what, desc.Digest, have)
	}
	return data.Bytes(), nil
}

// attestationOf is the annotation of those entries in an index that are not for a platform:
// documents that Docker's builder writes about another entry.
const attestationOf = "vnd.docker.reference.type"

// choose returns the entry for WebAssembly in an index, or the only one for any platform.
func choose(index ocispec.Index) (ocispec.Descriptor, error) {
	if len(index.Manifests) > maxPlatforms {
		return ocispec.Descriptor{}, fmt.Errorf("%w: the index has %d entries, expected at most %d", ErrTooLarge, len(index.Manifests), maxPlatforms)
	}

	var all, wasm []ocispec.Descriptor
	var names []string
	for _, m := range index.Manifests {
		if m.Annotations[attestationOf] != "" {
			continue
		}
		name := "no platform"
		if p := m.Platform; p != nil {
			name = p.OS + "/" + p.Architecture
			if p.Architecture == "wasm" || p.Architecture == "wasm32" {
				wasm = append(wasm, m)
			}
		}
		all, names = append(all, m), append(names, name)
	}

	for _, found := range [][]ocispec.Descriptor{wasm, all} {
		if len(found) != 1 {
			continue
		}
		if slices.Contains(indexTypes, found[0].MediaType) {
			return ocispec.Descriptor{}, fmt.Errorf("%w: the index leads to another index", ErrNoPlugin)
		}
		return found[0], nil
	}
	if len(all) == 0 {
		return ocispec.Descriptor{}, fmt.Errorf("%w: the index is empty", ErrNoPlugin)
	}
	if len(wasm) > 0 {
		return ocispec.Descriptor{}, fmt.Errorf("%w: the index has %d manifests for WebAssembly: name one by its digest", ErrAmbiguous, len(wasm))
	}
	return ocispec.Descriptor{}, fmt.Errorf("%w: the index has manifests for %.200s, and none for WebAssembly: name one by its digest", ErrAmbiguous, strings.Join(names, ", "))
}

// module returns the layer that is a module. It reports false for images, because their layers are
// archives.
func module(m ocispec.Manifest) (ocispec.Descriptor, bool, error) {
	var found, images []ocispec.Descriptor
	var types []string
	for _, layer := range m.Layers {
		types = append(types, fmt.Sprintf("%.80q", layer.MediaType))
		switch {
		case slices.Contains(moduleTypes, layer.MediaType):
			found = append(found, layer)
		case slices.Contains(imageTypes, layer.MediaType):
			images = append(images, layer)
		}
	}

	switch {
	case len(found) == 1:
		return found[0], true, nil
	case len(found) > 1:
		return ocispec.Descriptor{}, false, fmt.Errorf("%w: it has %d modules, expected one", ErrAmbiguous, len(found))
	case len(images) == 0 || len(images) != len(m.Layers):
		return ocispec.Descriptor{}, false, fmt.Errorf("%w: its layers are [%.300s], expected one of %s", ErrNoPlugin, strings.Join(types, ", "), layerType)
	}
	return ocispec.Descriptor{}, false, nil
}

// magic is how every module begins.
var magic = []byte("\x00asm")

func checkModule(data []byte) error {
	if !bytes.HasPrefix(data, magic) {
		return fmt.Errorf("%w: the module begins with %.8q, expected %q", ErrNoPlugin, data[:min(len(data), 4)], magic)
	}
	return nil
}
