package client

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAddressWithoutPort: only a URL has a port of its own.
func TestAddressWithoutPort(t *testing.T) {
	for _, address := range []string{"7970", "localhost", ":", "localhost:"} {
		_, err := New(address, Options{})
		require.ErrorAs(t, err, new(*AddressError), address)
	}
	for _, address := range []string{"localhost:7970", "http://localhost", "[::1]:7070"} {
		_, err := New(address, Options{})
		require.NoError(t, err, address)
	}
}
