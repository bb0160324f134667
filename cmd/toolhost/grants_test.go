package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// Each setting of a grant but "config" is a capability: messages name capabilities,
// and their readers look for those names in the configuration.
func TestGrantsAreCapabilities(t *testing.T) {
	var keys, names []string
	for _, s := range grantSettings(new(host.Grant)) {
		require.NotEmpty(t, s.doc, s.key)
		keys = append(keys, s.key)
	}
	names = append(names, "config")
	for _, c := range host.Capabilities {
		names = append(names, c.Name)
	}
	slices.Sort(keys)
	slices.Sort(names)
	require.Equal(t, names, keys)
}
