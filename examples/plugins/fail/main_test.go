package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

// A panic is not a tool error: the model could do nothing about it.
func TestPanic(t *testing.T) {
	out := guesttest.Call(&plugin, "fail", args{How: "panic", Message: "broken"})
	require.Equal(t, abi.Internal, out.Kind)
	require.Equal(t, "broken", out.Error)
	require.Len(t, out.Logs, 1)
	require.Contains(t, out.Logs[0].Message, "fail.fail(", "the operator sees the stack")
}
