package server

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/wire"
)

// Limits of the answer to a search.
const (
	DefaultFound = 5        // tools, unless the search asks for more or fewer
	MaxFound     = 200      // tools of any search
	maxFoundSize = 24 << 10 // bytes of the tools for an agent or a script, unless one alone is larger
	maxFoundBy   = 20       // tools for an agent or a script
)

// searchTools answers tools_search: among all tools that the agent can call, except for
// those of its own that it has anyway.
func searchTools(_ context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		Query string   `json:"query"`
		Limit *float64 `json:"limit"`
	}](req.Args)
	if err != nil {
		return nil, err
	}

	limit := DefaultFound
	if in.Limit != nil {
		limit = int(*in.Limit)
	}
	answer := findTools(s, in.Query, min(limit, maxFoundBy), maxFoundSize, func(searchable) bool { return true })
	return answer, nil
}

// searchFor answers the operation tool.search of a plugin's tool: among the tools that it
// may call.
func (s *Service) searchFor(tool *callable) func(host.ToolSearch) abi.FoundTools {
	return func(q host.ToolSearch) abi.FoundTools {
		callable := s.callableBy(tool)
		found := findTools(s, q.Query, min(cmp.Or(q.Limit, DefaultFound), maxFoundBy), maxFoundSize, func(t searchable) bool { return slices.Contains(callable, t.name) })

		out := abi.FoundTools{Tools: []abi.FoundTool{}, More: found.More}
		for _, t := range found.Tools {
			out.Tools = append(out.Tools, abi.FoundTool(t))
		}
		return out
	}
}

// Declarations returns TypeScript declarations of up to limit tools of plugins and of the
// program that match words of the query, best first. An empty query finds all of them, by
// name. The limit is between 1 and [MaxFound].
func (s *Service) Declarations(query string, limit int) wire.Declarations {
	answer := findTools(s, query, min(max(limit, 1), MaxFound), math.MaxInt, func(t searchable) bool { return !slices.Contains(agentNames, t.name) })
	answer.Hint = ""
	return answer
}

// findTools searches among tools that may be found. The answer has about size bytes,
// unless its first tool alone is larger.
func findTools(s *Service, query string, limit, size int, may func(searchable) bool) wire.Declarations {
	all := s.searchables(s.runs)
	docs := s.index.among(all)
	out := wire.Declarations{Tools: []wire.Declaration{}}

	for _, i := range s.index.find(query, all) {
		switch {
		case !may(all[i]):
			continue
		case out.More > 0 || len(out.Tools) == limit:
			out.More++
			continue
		}

		found := wire.Declaration{Name: all[i].name, Declaration: docs[i].declaration(), Description: all[i].text}
		if size -= len(found.Declaration) + len(found.Description); size < 0 && len(out.Tools) > 0 {
			out.More++
			continue
		}
		out.Tools = append(out.Tools, found)
	}

	if len(out.Tools) == 0 {
		out.Hint = fmt.Sprintf("no tool has these words: try others, or an empty query, which finds all %d tools", len(all))
	}
	return out
}

// searchables returns the tools that can be found: all that agents may call, except for
// those of their own that they have anyway.
func (s *toolset) searchables(runs *background.Manager) (all []searchable) {
	tools := s.callables()
	for _, t := range tools {
		if t.Denied() == nil {
			all = append(all, searchable{t.Tool, t.Name, t.Tool.Description + t.rules.hint(t.Tool)})
		}
	}
	for _, a := range s.offered(tools, runs) {
		if name := a.definition.Name; s.defersAgent(name, scripts(tools)) {
			all = append(all, searchable{a.found, name, a.definition.Description})
		}
	}
	return all
}
