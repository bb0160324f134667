package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
)

// wasmConfig is the config in the CNCF's layout. LayerDigests makes the config, and thus
// the manifest, differ between modules.
type wasmConfig struct {
	Created      string          `json:"created"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	LayerDigests []digest.Digest `json:"layerDigests"`
}

// created is the fixed time in every config. Thanks to it, pushing a module twice yields
// the same digest.
const created = "1970-01-01T00:00:00Z"

// Push pushes a module under a tag, in the CNCF's layout, with annotations on the manifest.
// It returns the digest of the manifest, which depends only on the module and the
// annotations. Errors are of type [Error].
func (c *Client) Push(ctx context.Context, ref Reference, wasm []byte, annotations map[string]string) (digest.Digest, error) {
	if ref.Tag == "" || ref.Digest != "" {
		return "", &Error{ref.String(), fmt.Errorf("%w: push names a tag, and no digest", ErrReference)}
	}
	if len(wasm) > MaxModule {
		return "", &Error{ref.String(), fmt.Errorf("%w: the module has %d bytes, expected at most %d", ErrTooLarge, len(wasm), MaxModule)}
	}
	if err := checkModule(wasm); err != nil {
		return "", &Error{ref.String(), err}
	}

	ctx, cancel := c.limit(ctx)
	defer cancel()
	repo, err := c.repository(ref)
	if err != nil {
		return "", err
	}
	d, err := push(ctx, repo, ref, wasm, annotations)
	return d, failed(ctx, ref, err)
}

func push(ctx context.Context, repo *remote.Repository, ref Reference, wasm []byte, annotations map[string]string) (digest.Digest, error) {
	layer := describe(layerType, wasm)
	config, err := json.Marshal(wasmConfig{created, "wasm", "wasip1", []digest.Digest{layer.Digest}})
	if err != nil {
		return "", err
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: describe(configType, config), Layers: []ocispec.Descriptor{layer}, Annotations: annotations,
	}
	document, err := json.Marshal(manifest)
	if err != nil {
		return "", err
	}

	if err := pushBlob(ctx, repo, manifest.Config, config); err != nil {
		return "", err
	}
	if err := pushBlob(ctx, repo, layer, wasm); err != nil {
		return "", err
	}
	desc := describe(ocispec.MediaTypeImageManifest, document)
	return desc.Digest, repo.PushReference(ctx, desc, bytes.NewReader(document), ref.Tag)
}

func pushBlob(ctx context.Context, repo *remote.Repository, desc ocispec.Descriptor, data []byte) error {
	if have, err := repo.Blobs().Exists(ctx, desc); err != nil || have {
		return err
	}
	return repo.Blobs().Push(ctx, desc, bytes.NewReader(data))
}

func describe(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}
