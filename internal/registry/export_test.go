package registry

import (
	"context"
	"net/netip"

	"github.com/opencontainers/go-digest"
)

// Limits of this package, for tests of what is beyond them.
const (
	MaxManifest = maxManifest
	MaxLayers   = maxLayers
	MaxEntries  = maxEntries
	MaxUnpacked = maxUnpacked
	MaxAttached = maxAttached
)

// SetLookup replaces the look-up of addresses, and returns a function that undoes it.
func SetLookup(addrs map[string]string) (undo func()) {
	before := lookup
	lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
		if addr, err := netip.ParseAddr(addrs[name]); err == nil {
			return []netip.Addr{addr}, nil
		}
		return nil, nil
	}
	return func() { lookup = before }
}

// Attached returns the documents of a media type that are attached to the manifest with a
// digest.
func (c *Client) Attached(ctx context.Context, ref Reference, d digest.Digest, mediaType string) ([][]byte, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	ref = ref.At(d)
	repo, subject, err := c.resolve(ctx, ref)
	var documents [][]byte
	if err == nil {
		documents, err = attached(ctx, repo, subject, mediaType)
	}
	return documents, failed(ctx, ref, err)
}
