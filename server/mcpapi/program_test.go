package mcpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// A client can see which tools nothing contains.
func TestUnsandboxedTools(t *testing.T) {
	require.Equal(t, true, toTool(server.Definition{Name: "own", Unsandboxed: true}).Meta["toolhost/unsandboxed"])
	require.Nil(t, toTool(server.Definition{Name: "contained", Plugin: "contained"}).Meta)
}
