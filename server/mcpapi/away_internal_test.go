package mcpapi

import (
	"errors"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A store of runs that is away has an error of its own, which says that it passes, and
// nothing of where it is.
func TestHostError(t *testing.T) {
	away := hostError(fmt.Errorf("storing the run: %w: dial tcp 10.0.0.7:5432", engine.ErrUnavailable))
	require.EqualValues(t, 503, away.Code)
	require.Contains(t, away.Message, "try again in a few seconds")
	require.NotContains(t, away.Message, "10.0.0.7")

	other := hostError(errors.New("a bug at 10.0.0.7"))
	require.EqualValues(t, jsonrpc.CodeInternalError, other.Code)
	require.Equal(t, abi.InternalMessage, other.Message)
}
