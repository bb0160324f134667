package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

// Limits of the answer to a search.
const (
	DefaultFound = 5        // number of tools that a search returns by default
	MaxFound     = 200      // maximum number of tools that a search can return
	maxFoundSize = 24 << 10 // maximum size of the tools returned to an agent or a script, in bytes, unless one alone is larger
	maxFoundBy   = 20       // maximum number of tools returned to an agent or a script
)

// Search answers the search of an agent. It searches among all tools that the agent may call,
// and among own: those of the agent's own tools that are found by search only.
func (c *Catalog) Search(query string, limit int, own []Entry) wire.Declarations {
	return c.search(append(c.entries(), own...), query, min(limit, maxFoundBy), maxFoundSize, everything)
}

// SearchFor returns the function that answers the searches of a plugin's tool. It searches
// among the tools that the plugin may call.
func (c *Catalog) SearchFor(t *Tool) func(host.ToolSearch) abi.FoundTools {
	return func(q host.ToolSearch) abi.FoundTools {
		callable := c.callableBy(t)
		found := c.search(c.entries(), q.Query, min(cmp.Or(q.Limit, DefaultFound), maxFoundBy), maxFoundSize, func(name string) bool { return slices.Contains(callable, name) })

		out := abi.FoundTools{Tools: []abi.FoundTool{}, More: found.More}
		for _, t := range found.Tools {
			out.Tools = append(out.Tools, abi.FoundTool(t))
		}
		return out
	}
}

// Declarations returns TypeScript declarations of up to limit tools that match words of the
// query, best matches first. An empty query finds all of them, sorted by name. The limit must
// be between 1 and [MaxFound].
func (c *Catalog) Declarations(query string, limit int) wire.Declarations {
	answer := c.search(c.entries(), query, min(max(limit, 1), MaxFound), math.MaxInt, everything)
	answer.Hint = ""
	return answer
}

func everything(string) bool { return true }

// entries returns the tools that agents may call.
func (c *Catalog) entries() (all []Entry) {
	for _, t := range c.Tools() {
		if t.Denied() == nil {
			all = append(all, Entry{t.Tool, t.Name, t.description()})
		}
	}
	return all
}

// search searches among tools that may be found. The answer has about size bytes, unless
// its first tool alone is larger.
func (c *Catalog) search(among []Entry, query string, limit, size int, may func(name string) bool) wire.Declarations {
	docs := c.index.among(among)
	out := wire.Declarations{Tools: []wire.Declaration{}}

	for _, i := range c.index.find(query, among) {
		switch {
		case !may(among[i].Name):
			continue
		case out.More > 0 || len(out.Tools) == limit:
			out.More++
			continue
		}

		found := wire.Declaration{Name: among[i].Name, Declaration: docs[i].declaration(), Description: among[i].Description}
		if size -= len(found.Declaration) + len(found.Description); size < 0 && len(out.Tools) > 0 {
			out.More++
			continue
		}
		out.Tools = append(out.Tools, found)
	}

	if len(out.Tools) == 0 {
		out.Hint = fmt.Sprintf("no tool has these words: try others, or an empty query, which finds all %d tools", len(among))
	}
	return out
}
