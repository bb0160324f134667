package guestcall

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
)

// ToolSearch is a plugin's search for tools.
type ToolSearch struct {
	Query string // words to look for; empty finds all tools
	Limit int    // maximum number of tools to return; 0 means the host's default
}

const (
	// maxSearch is the largest search request, in bytes.
	maxSearch = 16 << 10
	// searchCost is the cost of a search in units of fuel, in addition to the cost of its answer.
	searchCost = 1_000_000
)

// searchOperation takes {"query", "limit"}, and answers with the matching tools among
// those that the plugin may call.
func searchOperation(c *Call, request []byte) (Work, int32) {
	if len(request) > maxSearch {
		return nil, c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("the request of a search has at most %d bytes", maxSearch))
	}
	c.Meter.Charge(searchCost)

	var in struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}
	switch {
	case decodeStrict(request, &in) != nil || !utf8.Valid(request) || in.Limit < 0:
		return nil, c.Refuse(abi.CallInvalid, "invalid", `expected {"query": words, "limit": number}, both optional`)
	case len(c.Grant.Tools) == 0:
		return nil, c.deny(fmt.Sprintf("no tools are granted to this plugin: have the operator add them to grants.%s.tools, and name them in the plugin's needs", c.Plugin))
	case c.SearchTools == nil:
		return nil, c.deny("no other tools can be called here")
	}

	search := c.SearchTools
	return func(context.Context) End {
		found := JSON(search(ToolSearch{in.Query, in.Limit}))
		return End{Bytes: len(found), Finish: func() int32 { return c.respond(found) }}
	}, 0
}
