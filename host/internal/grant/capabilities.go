package grant

import (
	"slices"

	"github.com/toolhost/toolhost/abi"
)

// Capabilities lists all capabilities in display order.
var Capabilities = []Capability{clockCapability, randomCapability, askCapability, sessionCapability, kvCapability, httpCapability, secretsCapability, toolsCapability, filesCapability, envCapability, checkpointCapability, messagesCapability, reportCapability}

// Names lists everything that is granted, in the operator's notation.
func (g Grant) Names() []string {
	names := []string{}
	for _, c := range Capabilities {
		names = append(names, c.Granted(g)...)
	}
	return names
}

// Missing lists the needs of a plugin that were not granted, in the operator's
// notation.
func (g Grant) Missing(needs abi.Needs) []string {
	var missing []string
	for _, c := range Capabilities {
		missing = append(missing, c.Missing(needs, g)...)
	}
	return missing
}

// Lacking returns a grant of exactly the needs that Missing lists.
func (g Grant) Lacking(needs abi.Needs) Grant {
	var add Grant
	for _, c := range Capabilities {
		if c.Lacking != nil {
			c.Lacking(needs, g, &add)
		}
	}
	return add
}

// Check returns the problems with the grant.
func (g Grant) Check() (problems []GrantProblem) {
	for _, c := range Capabilities {
		if c.Check != nil {
			problems = append(problems, c.Check(g)...)
		}
	}
	return problems
}

// Writes reports whether the plugin can change anything outside its sandbox.
func (g Grant) Writes() bool {
	return slices.ContainsFunc(Capabilities, func(c Capability) bool { return c.Writes != nil && c.Writes(g) })
}
