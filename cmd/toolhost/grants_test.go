package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// Each setting of a grant but "config" is a capability: messages name capabilities,
// and their readers look for those names in the configuration.
func TestGrantsAreCapabilities(t *testing.T) {
	names := []string{"config"}
	for _, c := range host.Capabilities {
		names = append(names, c.Name)
	}
	var keys []string
	for _, s := range grantSettings(new(host.Grant)) {
		name, _, _ := strings.Cut(s.key, ".")
		require.Contains(t, names, name)
		require.NotEmpty(t, s.doc, s.key)
		keys = append(keys, name)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[host.Grant]()) {
		require.Contains(t, keys, strings.ToLower(field.Name), "a grant that cannot be configured")
	}
}
