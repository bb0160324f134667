package plugins

import (
	"maps"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// Grant is what the operator lets one plugin touch. The zero Grant is nothing.
type Grant struct {
	Clock  bool
	Random bool
	Ask    bool // put questions to the user
	Files  []host.Mount
	Env    map[string]string // values as the plugin sees them
	Config map[string]string // settings, read by the plugin from its context
}

// Names returns what is granted, in short.
func (g Grant) Names() []string {
	names := []string{}
	if g.Clock {
		names = append(names, "clock")
	}
	if g.Random {
		names = append(names, "random")
	}
	if g.Ask {
		names = append(names, "ask")
	}

	for _, m := range g.Files {
		mode := abi.FileRead
		if m.Write {
			mode = abi.FileWrite
		}
		names = append(names, "files "+m.Path+" ("+string(mode)+")")
	}

	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		names = append(names, "env "+name)
	}
	return names
}

// Missing names what a plugin needs and was not granted, as the operator would
// write it.
func (g Grant) Missing(needs abi.Needs) []string {
	var missing []string
	want := func(needed, granted bool, name string) {
		if needed && !granted {
			missing = append(missing, name)
		}
	}
	want(needs.Clock, g.Clock, "clock")
	want(needs.Random, g.Random, "random")

	want(needs.Ask, g.Ask, "ask")
	for _, f := range needs.Files {
		granted := slices.ContainsFunc(g.Files, func(m host.Mount) bool {
			return m.Path == f.Path && (m.Write || f.Mode == abi.FileRead)
		})
		want(true, granted, "files "+f.Path+" ("+string(f.Mode)+")")
	}

	for _, name := range needs.Env {
		_, granted := g.Env[name]
		want(true, granted, "env "+name)
	}
	return missing
}

// apply puts the grant into the policy of a call. A tool that says it is
// readonly gets its folders read-only, so that the hint holds whatever the
// tool does.
func (g Grant) apply(p *host.Policy, hints abi.Hints) {
	p.Clock, p.Random, p.Ask = g.Clock, g.Random, g.Ask
	p.Env, p.Config = maps.Clone(g.Env), maps.Clone(g.Config)
	p.Files = slices.Clone(g.Files)
	if hints.Readonly {
		for i := range p.Files {
			p.Files[i].Write = false
		}
	}
}

// Writes reports whether the plugin can change anything outside its sandbox.
func (g Grant) Writes() bool {
	return slices.ContainsFunc(g.Files, func(m host.Mount) bool { return m.Write })
}
