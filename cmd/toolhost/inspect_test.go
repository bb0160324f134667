package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// inspect names the isolation mode and why, and the tools that ask for another.
func TestDescribeIsolation(t *testing.T) {
	pure, impure := abi.Tool{Name: "pure"}, abi.Tool{Name: "impure", Hints: abi.Hints{PureInit: new(false)}}
	reset, fresh := host.Isolation{Mode: host.Reset, Why: "why"}, host.Isolation{Mode: host.Fresh, Why: "its code uses table.set"}
	for _, test := range []struct {
		isolation host.Isolation
		tools     []abi.Tool
		want      string
	}{
		{reset, []abi.Tool{pure}, "each call starts from a snapshot of the plugin after its start-up: why"},
		{reset, []abi.Tool{pure, impure}, "each call starts from a snapshot of the plugin after its start-up: why; calls of impure get a fresh instance: pure_init is false"},
		{fresh, []abi.Tool{pure, impure}, "a fresh instance for each call: its code uses table.set"},
	} {
		require.Equal(t, test.want, describeIsolation(test.isolation, test.tools))
	}
}
