package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// No error has no reason: its code is not that of an internal error.
func TestReasonOfNil(t *testing.T) { require.Zero(t, ReasonOf(nil)) }
