package catalog

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
		name  string
		terms Terms
		call  Limits
		tool  abi.Limits
		want  Limits
	}{
		{"nobody says anything", Terms{}, Limits{}, abi.Limits{}, defaults},
		{"the operator's", Terms{Limits: operator}, Limits{}, abi.Limits{}, operator},
		{"the tool's before the operator's", Terms{Limits: operator}, Limits{}, tool, asTool},
		{"the caller's before the tool's", Terms{Limits: operator}, caller, tool, caller},
		{"the tool asks for more than the maximum", Terms{Max: maximum}, Limits{}, tool, maximum},
		{"the caller asks for more than the maximum", Terms{Max: maximum}, operator, abi.Limits{}, maximum},
		{"the defaults are more than the maximum", Terms{Max: maximum}, Limits{}, abi.Limits{}, maximum},
		{
			"the tool asks for more than any host gives", Terms{}, Limits{},
			abi.Limits{Fuel: 1 << 62, MemoryBytes: 1 << 62, OutputBytes: 1 << 62, TimeoutSeconds: 1 << 62, BackgroundSeconds: 1 << 62},
			NewRules(Terms{}).most,
		},
		{
			"each field for itself", Terms{Limits: Limits{Output: 5}, Max: Limits{Memory: 6}}, Limits{Fuel: 7}, abi.Limits{TimeoutSeconds: 8},
			Limits{7, 6, 5, 8 * time.Second, background.DefaultTimeout},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, NewRules(test.terms).limits(test.call, &abi.Tool{Limits: test.tool}))
		})
	}
}

// A tool and a caller can only shorten the wait for a call. A parked call has time left.
func TestBudget(t *testing.T) {
	background := abi.Tool{Hints: abi.Hints{SupportsBackground: true}}
	for name, test := range map[string]struct {
		terms            Terms
		tool             abi.Tool
		asked, parkAfter time.Duration
		want             Budget // zero: it is not parked
	}{
		"overdue":               {want: Budget{2 * time.Minute, 7 * time.Minute}},
		"overdue, parked soon":  {terms: Terms{ParkAfter: time.Second}, want: Budget{time.Second, 5*time.Minute + time.Second}},
		"the author's limit":    {tool: abi.Tool{Limits: abi.Limits{TimeoutSeconds: 60}}},
		"never deferred":        {tool: abi.Tool{Deferrable: abi.DeferNever}},
		"the caller's limit":    {asked: time.Minute},
		"hinted":                {tool: background, want: Budget{DefaultParkAfter, 15 * time.Minute}},
		"the caller is quicker": {tool: background, parkAfter: time.Minute, want: Budget{time.Minute, 6 * time.Minute}},
		"the caller is slower":  {tool: background, parkAfter: time.Hour, want: Budget{DefaultParkAfter, 15 * time.Minute}},
		"the tool is quicker":   {tool: abi.Tool{Hints: background.Hints, Limits: abi.Limits{ParkAfterSeconds: 3}}, want: Budget{3 * time.Second, 5*time.Minute + 3*time.Second}},
		"it ends before":        {tool: background, asked: time.Minute},
		"none are parked":       {terms: Terms{Park: ParkNever}, tool: background},
		"never":                 {terms: Terms{ParkAfter: -1}, tool: background},
		"only hinted ones":      {terms: Terms{Park: ParkHinted}},
		"all":                   {terms: Terms{Park: ParkAll}, want: Budget{DefaultParkAfter, 15 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			tool := &Tool{Tool: &test.tool, Settings: settings{terms: test.terms}}
			got, ok := tool.Budget(tool.Limit(Limits{Timeout: test.asked}), test.asked, test.parkAfter)
			require.Equal(t, test.want, got)
			require.Equal(t, test.want != Budget{}, ok)
		})
	}
}
