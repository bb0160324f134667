package guesttest

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

// searchTools finds the other tools of the test whose names contain a word of the
// query. The test does not know their arguments and results.
func (c *call) searchTools(request []byte) (any, error) {
	var in struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}
	strict := json.NewDecoder(bytes.NewReader(request))
	strict.DisallowUnknownFields()
	if strict.Decode(&in) != nil || in.Limit < 0 {
		return nil, &guest.HostError{Code: "invalid", Message: "not a request of tool.search"}
	}
	if len(c.Tools) == 0 {
		return nil, &guest.HostError{Code: "denied", Message: "no tools are granted to this plugin"}
	}

	found, words := guest.FoundTools{Tools: []abi.FoundTool{}}, strings.Fields(in.Query)
	limit := 5
	if in.Limit > 0 {
		limit = min(in.Limit, 20)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		switch {
		case len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) }):
		case len(found.Tools) == limit:
			found.More++
		default:
			found.Tools = append(found.Tools, abi.FoundTool{Name: name, Declaration: name + "(args?: Record<string, unknown>): Promise<unknown>"})
		}
	}
	return found, nil
}
