package plugins

import (
	"fmt"
	"slices"
)

// View is the state of a [Registry] at one moment: its tools, and the Config.Attached that was
// set together with them. It does not change.
type View struct{ set *set }

// View returns the current state.
func (r *Registry) View() View { return View{r.set.Load()} }

// Attached returns Config.Attached, as set by the last [Registry.Reconfigure].
func (v View) Attached() any { return v.set.cfg.Attached }

// Tools is like [Registry.Tools].
func (v View) Tools() []*Tool {
	tools := make([]*Tool, len(v.set.names))
	for i, name := range v.set.names {
		tools[i] = v.set.tools[name]
	}
	return tools
}

// Lookup is like [Registry.Lookup].
func (v View) Lookup(name string, others ...string) (*Tool, error) {
	if t, ok := v.set.tools[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %.64q%s", ErrNoTool, name, didYouMean(name, slices.Concat(v.set.names, others)))
}
