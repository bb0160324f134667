package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/abi"
)

// TestPrograms: each program says where it is, and either how it is called or why it is refused.
func TestPrograms(t *testing.T) {
	all, err := programs()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, p := range all {
		require.Contains(t, []string{"npm", "pypi", "go", "gobuild", "crate"}, p.Registry, p.Title)
		require.NotEmpty(t, p.Package, p.Title)
		require.NotEmpty(t, p.Version, p.Title)
		require.True(t, p.Name != "" || p.Registry == "gobuild", p.Title)
		require.Len(t, p.SHA256, 64, p.Title)
		require.NotEqual(t, p.Command == nil, p.Refused == "", p.Title)
		require.Equal(t, p.Refused == "", p.Why == "", p.Title)
		if p.Refused == "" {
			var sidecar any
			require.NoError(t, yaml.Unmarshal([]byte(p.manifest()), &sidecar), p.Title)
			manifest, err := json.Marshal(sidecar)
			require.NoError(t, err)
			_, err = abi.DecodeManifest(manifest)
			require.NoError(t, err, p.Title)
		}
	}
}
