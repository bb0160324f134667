package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/abi"
)

// The manifest is written by hand, so its examples are what keeps it true.
func TestSidecar(t *testing.T) {
	sidecar, err := os.ReadFile("digest.toolhost.yaml")
	require.NoError(t, err)
	var doc any
	require.NoError(t, yaml.Unmarshal(sidecar, &doc))
	data, err := json.Marshal(doc)
	require.NoError(t, err)
	m, err := abi.DecodeManifest(data)
	require.NoError(t, err)
	require.NotEmpty(t, m.Tools[0].Examples)
	for _, e := range m.Tools[0].Examples {
		var out bytes.Buffer
		require.NoError(t, run(bytes.NewReader(e.Args), &out), e.Name)
		require.JSONEq(t, string(e.Result), out.String(), e.Name)
	}
}

func TestBadInput(t *testing.T) {
	for in, want := range map[string]string{
		`{"text":`:                           "expected JSON on stdin",
		`{"text":"abc","algorithm":"crc32"}`: `unknown algorithm "crc32"`,
	} {
		require.ErrorContains(t, run(bytes.NewReader([]byte(in)), &bytes.Buffer{}), want)
	}
}
