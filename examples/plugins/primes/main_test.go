package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

// An attempt that was cut short is continued by the next one, and counts
// nothing twice.
func TestResume(t *testing.T) {
	const limit = 2 * kept
	whole := guesttest.Call(&plugin, "primes", args{limit})
	require.True(t, whole.IsSuccess(), whole)

	var saved []byte
	h := guesttest.Host{StopAfter: kept/segment + 10, Checkpoint: &saved}
	first := h.Call(&plugin, "primes", args{limit})
	require.Equal(t, "canceled", first.Error)
	require.NotNil(t, saved)

	h.StopAfter = 0
	second := h.Call(&plugin, "primes", args{limit})
	require.JSONEq(t, string(whole.Value), string(second.Value))
	require.Contains(t, second.Stdout, "continuing at 16777216 with 1077871 primes\n")
	require.Equal(t, guesttest.Progress{Total: -1, Unit: "numbers", Status: "sieving"}, second.Progress[0])
	require.Greater(t, second.Progress[1].Done, float64(kept), "it did not begin anew")
	require.Equal(t, "Found 2063689 primes up to 33554432; the largest is 33554393.", second.Summary)
}
