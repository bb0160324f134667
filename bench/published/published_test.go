package main

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/bench/internal/download"
)

// TestPrograms: each program says where it is, and either how it is called and what comes of it
// or why it is refused. It has a folder of its own.
func TestPrograms(t *testing.T) {
	all, err := programs()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	folders := map[string]string{}
	for _, p := range all {
		require.Contains(t, []string{"npm", "pypi", "go", "gobuild", "crate"}, p.Registry, p.Title)
		require.NotEmpty(t, p.Package, p.Title)
		require.NotEmpty(t, p.Version, p.Title)
		require.True(t, p.Name != "" || p.Registry == "gobuild", p.Title)
		require.Len(t, p.SHA256, 64, p.Title)
		require.NotEqual(t, p.Command == nil, p.Refused == "", p.Title)
		require.Equal(t, p.Refused == "", p.Why == "", p.Title)
		require.Equal(t, p.Refused == "", p.Expect != "", p.Title)
		require.Equal(t, p.Share == "", p.Hash == "", p.Title)
		require.Empty(t, folders[lab{}.folder(p.Title)], p.Title)
		if p.From != "" {
			require.Contains(t, folders, lab{}.folder(p.From), p.Title)
		}
		folders[lab{}.folder(p.Title)] = p.Title

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

func TestChosen(t *testing.T) {
	all := []program{{Title: "a"}, {Title: "b", Large: true}, {Title: "c", From: "b"}, {Title: "d", From: "c"}, {Title: "e", From: "a"}}
	require.Equal(t, all, chosen(all, "", false))
	require.Equal(t, []program{all[0], all[4]}, chosen(all, "", true))
	require.Equal(t, []program{all[2]}, chosen(all, "c", false))
	require.Empty(t, chosen(all, "c", true))
}

// TestCache: a file is used if it is the one that was written, and what is built belongs to the
// compiler too.
func TestCache(t *testing.T) {
	ctx := context.Background()
	l := lab{cache: t.TempDir()}
	file := download.File{Registry: "none", Name: "package/p.wasm", SHA256: download.Digest([]byte("wasm"))}
	_, err := l.fetch(ctx, file)
	require.ErrorContains(t, err, "unknown registry")

	kept, _, err := l.kept(ctx, file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(kept, []byte("wasm"), 0o600))
	data, err := l.fetch(ctx, file)
	require.NoError(t, err)
	require.Equal(t, "wasm", string(data))
	require.NoError(t, os.WriteFile(kept, []byte("was"), 0o600))
	_, err = l.fetch(ctx, file)
	require.ErrorContains(t, err, "unknown registry")

	built := download.File{Registry: "gobuild", Name: "cmd/p", SHA256: file.SHA256}
	kept, digest, err := l.kept(ctx, built)
	require.NoError(t, err)
	require.Contains(t, kept, "-go1.")
	require.Empty(t, digest)
	require.NoError(t, os.WriteFile(kept, []byte("built"), 0o600))
	require.NoError(t, os.WriteFile(kept+".sha256", []byte(download.Digest([]byte("built"))), 0o600))
	data, err = l.fetch(ctx, built)
	require.NoError(t, err)
	require.Equal(t, "built", string(data))
}
