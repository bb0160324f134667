package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
)

// The caller's limit counts, else the tool's, else the operator's, else the
// host's; none is more than the operator's maximum.
func TestLimits(t *testing.T) {
	tool := abi.Limits{Fuel: 200, MemoryBytes: 2 << 20, OutputBytes: 2000, TimeoutSeconds: 20, BackgroundSeconds: 200}
	asTool := Limits{Fuel: 200, Memory: 2 << 20, Output: 2000, Timeout: 20 * time.Second, Background: 200 * time.Second}
	caller := Limits{Fuel: 1, Memory: 1, Output: 1, Timeout: 1, Background: 1}
	operator := Limits{Fuel: 300, Memory: 3 << 20, Output: 3000, Timeout: 30 * time.Second, Background: 300 * time.Second}
	maximum := Limits{Fuel: 100, Memory: 1 << 20, Output: 1000, Timeout: 10 * time.Second, Background: 100 * time.Second}
	defaults := Limits{host.DefaultFuel, host.DefaultMemory, host.DefaultOutput, host.DefaultTimeout, background.DefaultTimeout}
	for _, test := range []struct {
		name string
		cfg  Config
		call Limits
		tool abi.Limits
		want Limits
	}{
		{"nobody says anything", Config{}, Limits{}, abi.Limits{}, defaults},
		{"the operator's", Config{Limits: operator}, Limits{}, abi.Limits{}, operator},
		{"the tool's before the operator's", Config{Limits: operator}, Limits{}, tool, asTool},
		{"the caller's before the tool's", Config{Limits: operator}, caller, tool, caller},
		{"the tool asks for more than the maximum", Config{MaxLimits: maximum}, Limits{}, tool, maximum},
		{"the caller asks for more than the maximum", Config{MaxLimits: maximum}, operator, abi.Limits{}, maximum},
		{"the defaults are more than the maximum", Config{MaxLimits: maximum}, Limits{}, abi.Limits{}, maximum},
		{
			"the tool asks for more than any host gives", Config{}, Limits{},
			abi.Limits{Fuel: 1 << 62, MemoryBytes: 1 << 62, OutputBytes: 1 << 62, TimeoutSeconds: 1 << 62, BackgroundSeconds: 1 << 62},
			newRules(Config{}).most,
		},
		{
			"each field for itself", Config{Limits: Limits{Output: 5}, MaxLimits: Limits{Memory: 6}}, Limits{Fuel: 7}, abi.Limits{TimeoutSeconds: 8},
			Limits{7, 6, 5, 8 * time.Second, background.DefaultTimeout},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, newRules(test.cfg).limits(test.call, &abi.Tool{Limits: test.tool}))
		})
	}
}

// The operator's maximum for background runs holds where it is more than the
// default one, too.
func TestMaxBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{MaxLimits: Limits{Background: 2 * time.Hour}}, "sleeper")
		answer := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":7200}`)
		run, err := s.Session(alice).Run(t.Context(), answer["task_id"].(string))
		require.NoError(t, err)
		require.EqualValues(t, 7200, run.DeadlineSeconds)
		require.Equal(t, "timeout_seconds: must be between 1 and 7200",
			s.refused(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":7201}`))
	})
	bubble(t, func(t *testing.T) {
		s := open(t, Config{MaxLimits: Limits{Background: time.Minute}}, "sleeper")
		run, err := s.Session(alice).Run(t.Context(), s.spawn(alice, "sleeper", `{}`))
		require.NoError(t, err)
		require.EqualValues(t, 60, run.DeadlineSeconds)
	})
}
