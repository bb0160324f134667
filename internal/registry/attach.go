package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
)

// Limits on the documents that are attached to a manifest.
const (
	maxReferrerPages = 8
	maxAttached      = 64      // documents of one media type
	maxAttachment    = 1 << 20 // bytes in a document
)

// Attach attaches a document with a media type, such as a signature, to the manifest that a
// reference names. The document becomes a referrer: it gets a manifest of its own, with the
// given annotations. Attach returns the digest of the manifest that it attached the document
// to. Errors are of type [Error].
func (c *Client) Attach(ctx context.Context, ref Reference, mediaType string, document []byte, annotations map[string]string) (digest.Digest, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	repo, subject, err := c.resolve(ctx, ref)
	if err == nil {
		err = attach(ctx, repo, subject, mediaType, document, annotations)
	}
	return subject.Digest, failed(ctx, ref, err)
}

func attach(ctx context.Context, repo *remote.Repository, subject ocispec.Descriptor, mediaType string, document []byte, annotations map[string]string) error {
	layer, empty := describe(mediaType, document), ocispec.DescriptorEmptyJSON
	empty.Data = nil
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: mediaType, Config: empty, Layers: []ocispec.Descriptor{layer},
		Subject: &subject, Annotations: annotations,
	})
	if err != nil {
		return err
	}

	if err := pushBlob(ctx, repo, empty, ocispec.DescriptorEmptyJSON.Data); err != nil {
		return err
	}
	if err := pushBlob(ctx, repo, layer, document); err != nil {
		return err
	}
	return repo.Push(ctx, describe(ocispec.MediaTypeImageManifest, manifest), bytes.NewReader(manifest)) // lists the referrer if the registry does not
}

// attached returns the documents with a media type that are attached to a manifest, in the
// order of the registry. They are not trusted: anyone who can push can attach documents.
func attached(ctx context.Context, repo *remote.Repository, subject ocispec.Descriptor, mediaType string) (documents [][]byte, err error) {
	var found []ocispec.Descriptor
	err = repo.Referrers(ctx, subject, mediaType, func(page []ocispec.Descriptor) error {
		if found = append(found, page...); len(found) > maxAttached {
			return fmt.Errorf("%w: more than %d documents of %s are attached to it", ErrTooLarge, maxAttached, mediaType)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	for _, desc := range found {
		data, err := fetchDocument(ctx, repo, desc)
		if err != nil {
			return nil, err
		}
		var m ocispec.Manifest
		if err := decodeManifest(data, desc, &m); err != nil {
			return nil, err
		}
		if m.Subject == nil || m.Subject.Digest != subject.Digest { // the registry's list is not trusted
			return nil, fmt.Errorf("%w: %s is listed as attached to %s, and is not", ErrDigest, desc.Digest, subject.Digest)
		}
		for _, layer := range m.Layers {
			if layer.MediaType != mediaType {
				continue
			}
			document, err := fetch(ctx, repo.Blobs(), layer, "an attached document", maxAttachment)
			if err != nil {
				return nil, err
			}
			if documents = append(documents, document); len(documents) > maxAttached {
				return nil, fmt.Errorf("%w: more than %d documents of %s are attached to it", ErrTooLarge, maxAttached, mediaType)
			}
		}
	}
	return documents, nil
}

// PullAttached stores documents that were attached to a stored artifact after it was pulled, if
// [Client.Prefer] prefers them. It returns the artifact with these documents. It removes no
// documents, and does not ask the registry if the artifact already has a preferred document.
// After that, [Store.Find] returns the new artifact for a reference by digest, but for a tag
// only once [Store.Name] has been called. Errors are of type [Error].
func (c *Client) PullAttached(ctx context.Context, ref Reference, a Artifact) (Artifact, error) {
	wasm, err := c.Store.Module(a)
	if err != nil || c.Prefer == nil || c.hasPreferred(a, wasm) {
		return a, err
	}

	ctx, cancel := c.limit(ctx)
	defer cancel()
	at := ref.At(a.Digest)
	repo, subject, err := c.resolve(ctx, at)
	if err != nil {
		return a, failed(ctx, at, err)
	}
	a.Source = at.String()
	now, err := c.untilComplete(func() (Artifact, error) {
		now, err := c.addAttached(ctx, repo, subject, a, wasm, false)
		if err != nil {
			return now, err
		}
		return now, c.Store.name(now)
	})
	return now, failed(ctx, at, err)
}

// hasPreferred reports whether an artifact has a document that the client prefers.
func (c *Client) hasPreferred(a Artifact, wasm []byte) bool {
	for ending, d := range a.Attached {
		if document, err := c.Store.content(d); err == nil && c.Prefer(ending, wasm, document) {
			return true
		}
	}
	return false
}

// addAttached stores the documents that are attached to an artifact, one of each media type:
// the first that the client prefers or, if there is none and orFirst is set, the first of all.
func (c *Client) addAttached(ctx context.Context, repo *remote.Repository, subject ocispec.Descriptor, a Artifact, wasm []byte, orFirst bool) (Artifact, error) {
	a.Attached = maps.Clone(a.Attached)
	for _, ending := range slices.Sorted(maps.Keys(c.Attachments)) {
		documents, err := attached(ctx, repo, subject, c.Attachments[ending])
		if err != nil {
			return a, err
		}

		i := -1
		if c.Prefer != nil && (!orFirst || len(documents) > 1) {
			i = slices.IndexFunc(documents, func(d []byte) bool { return c.Prefer(ending, wasm, d) })
		}
		if i < 0 && orFirst && len(documents) > 0 {
			i = 0
		}
		if i < 0 {
			continue
		}

		if err := c.Store.write(documents[i]); err != nil {
			return a, err
		}
		if a.Attached == nil {
			a.Attached = map[string]digest.Digest{}
		}
		a.Attached[ending] = digest.FromBytes(documents[i])
	}
	return a, nil
}
