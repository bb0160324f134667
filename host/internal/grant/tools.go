package grant

import (
	"fmt"
	"slices"

	"github.com/toolhost/toolhost/abi"
)

// toolsCapability grants calls to other tools.
var toolsCapability = Capability{
	Name: "tools", Doc: "other tools that it may call, by the names that agents know them by",
	Missing: func(n abi.Needs, g Grant) []string { return texts(lackingTools(n, g), toolText) },
	Lacking: func(n abi.Needs, g Grant, add *Grant) { add.Tools = lackingTools(n, g) },
	Granted: func(g Grant) []string { return texts(g.Tools, toolText) },
	Check: func(g Grant) (problems []GrantProblem) {
		for i, name := range g.Tools {
			if !abi.IsAgentName(name) && name != abi.EveryTool {
				problems = append(problems, GrantProblem{fmt.Sprintf("tools.%d", i), fmt.Sprintf("expected the name of a tool as agents know it, or * for every tool, found %.80q", name)})
			}
		}
		return problems
	},
}

func toolText(name string) string {
	if name == abi.EveryTool {
		return "every tool"
	}
	return "tool " + name
}

// AllowsTool reports whether the grant lets a plugin call a tool.
func (g Grant) AllowsTool(name string) bool {
	return slices.Contains(g.Tools, name) || slices.Contains(g.Tools, abi.EveryTool)
}

// lackingTools returns the tools that a plugin needs but was not granted.
func lackingTools(n abi.Needs, g Grant) (lacking []string) {
	for _, name := range n.Tools {
		if name == abi.EveryTool && len(g.Tools) > 0 { // the operator has chosen some
			continue
		}
		if !g.AllowsTool(name) && !slices.Contains(lacking, name) {
			lacking = append(lacking, name)
		}
	}
	return lacking
}
