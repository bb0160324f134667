package plugins

import (
	"maps"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// Grant is what the operator grants one plugin. The zero Grant grants nothing.
type Grant = host.Grant

// granted is what a call of a tool may touch. A tool that says it is readonly gets
// its folders read-only, so that the hint holds whatever the tool does.
func granted(g Grant, hints abi.Hints) Grant {
	g.Env, g.Config, g.Files = maps.Clone(g.Env), maps.Clone(g.Config), slices.Clone(g.Files)
	if hints.Readonly {
		for i := range g.Files {
			g.Files[i].Write = false
		}
	}
	return g
}
