package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/gotool"
)

// TestToolSearch: a plugin finds the tools that it may call, however models learn of them,
// and no others.
func TestToolSearch(t *testing.T) {
	for name, c := range map[string]struct {
		may     []string
		request string
		want    []string
		more    int
		failure string
	}{
		"one":                       {[]string{"echo", "plain"}, `{"query":"echo"}`, []string{"echo"}, 0, ""},
		"what is granted":           {[]string{"echo", "plain"}, `{}`, []string{"echo", "plain"}, 0, ""},
		"every tool":                {[]string{abi.EveryTool}, `{"query":""}`, []string{"caller", "echo", "fails", "plain", "post_letter"}, 0, ""},
		"as many as it wants":       {[]string{abi.EveryTool}, `{"limit":2}`, []string{"caller", "echo"}, 3, ""},
		"a tool of the program":     {[]string{"post_letter"}, `{"query":"letter"}`, []string{"post_letter"}, 0, ""},
		"the agent's":               {[]string{abi.EveryTool}, `{"query":"spawn_background"}`, []string{}, 0, ""},
		"one that lacks grants":     {[]string{abi.EveryTool}, `{"query":"sleeper"}`, []string{}, 0, ""},
		"one that was not granted":  {[]string{"plain"}, `{"query":"echo"}`, []string{}, 0, ""},
		"without granted tools":     {nil, `{"query":"echo"}`, nil, 0, "denied: no tools are granted to this plugin: have the operator add them to grants.caller.tools"},
		"a request that is no text": {[]string{"echo"}, `{"query":7}`, nil, 0, "invalid: expected"},
		"another field":             {[]string{"echo"}, `{"session":"bob"}`, nil, 0, "invalid: expected"},
		"a negative limit":          {[]string{"echo"}, `{"limit":-1}`, nil, 0, "invalid: expected"},
		"a long query":              {[]string{"echo"}, fmt.Sprintf(`{"query":%q}`, strings.Repeat("x", 20_000)), nil, 0, "limit: the request of a search has at most 16384 bytes"},
	} {
		for listing, listings := range map[string]map[string]Listing{"listed": nil, "deferred": {"*": ListBySearch}} {
			t.Run(name+" "+listing, func(t *testing.T) {
				s := openCallers(t, Config{Tools: []gotool.Tool{postLetter}, Listing: listings}, map[string]aCaller{
					"caller": {program: plugintest.Do().Use("tool.search", c.request), may: c.may},
				}, "echo", "plain", "fails")
				var got struct {
					abi.FoundTools
					Code, Message string
				}
				require.NoError(t, json.Unmarshal(s.call(alice, "caller", `{}`).Value, &got))

				if c.failure != "" {
					require.Contains(t, got.Code+": "+got.Message, c.failure)
					return
				}
				names := []string{}
				for _, tool := range got.Tools {
					names = append(names, tool.Name)
					require.Contains(t, tool.Declaration, tool.Name+"(")
				}
				require.Equal(t, c.want, names)
				require.Equal(t, c.more, got.More)
			})
		}
	}
}
