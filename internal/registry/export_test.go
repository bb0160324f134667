package registry

import (
	"context"
	"net/netip"
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
