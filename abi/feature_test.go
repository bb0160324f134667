package abi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// Features never disappear, or plugins that require them would not load any more.
func TestFeatures(t *testing.T) {
	require.Subset(t, abi.Features(), strings.Fields(`approval argv ask background_seconds call_start checkpoint clock config_schema concurrency deferrable destructive env needs optional
		examples files fuel idempotent kv limits long_running memory_bytes messages narrate open_world output_bytes output_schema
		park_after_seconds pure_init random readonly report session supports_background timeout_seconds title`))
	require.NotContains(t, abi.Features(), "name")
}

// What an extension holds never becomes part of the manifest.
func TestExtensionsArePassedOver(t *testing.T) {
	m, err := abi.DecodeManifest(readValid(t)["growth.json"])
	require.NoError(t, err)
	require.Equal(t, "kv", m.Requires[0])
	require.True(t, m.Tools[0].Hints.Readonly)
	require.EqualValues(t, 5, m.Tools[0].Limits.TimeoutSeconds)
}
