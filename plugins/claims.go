package plugins

import (
	"fmt"
	"slices"
	"strings"
)

// dropRefused removes plugins of packs that are not in the lock and do not give way to
// others. They become problems.
func (l *loader) dropRefused(found []*Plugin) []*Plugin {
	return slices.DeleteFunc(found, func(p *Plugin) bool {
		if p.refused != nil {
			l.problem(p.File, p.refused)
		}
		return p.refused != nil
	})
}

// override removes the plugins of packs whose names another plugin uses, and returns
// which those are.
func override(found []*Plugin) (kept []*Plugin, overridden []Problem) {
	claims := claimed(slices.DeleteFunc(slices.Clone(found), func(p *Plugin) bool { return p.Pack }))
	for _, p := range found {
		i := slices.IndexFunc(p.claims(), func(claim string) bool { return p.Pack && claims[claim] != nil })
		if i < 0 {
			kept = append(kept, p)
			continue
		}
		claim := p.claims()[i]
		overridden = append(overridden, Problem{p.File, fmt.Errorf("overridden by %s, which also has %s", claims[claim][0].File, claim)})
	}
	return kept, overridden
}

// claimed maps the names that must be unique to the plugins that use them.
func claimed(found []*Plugin) map[string][]*Plugin {
	claims := map[string][]*Plugin{}
	for _, p := range found {
		for _, claim := range p.claims() {
			claims[claim] = append(claims[claim], p)
		}
	}
	return claims
}

// claims returns the names of the plugin that must be unique.
func (p *Plugin) claims() []string {
	claims := []string{fmt.Sprintf("the plugin %q", p.Manifest.Name)}
	for _, t := range p.Tools {
		claims = append(claims, fmt.Sprintf("the tool %q", t.Name))
	}
	return claims
}

// collision returns an error if another plugin or the host also uses the name of the
// plugin or of a tool. None of them is loaded: which one an agent reaches must not
// depend on the order of files.
func (p *Plugin) collision(claims map[string][]*Plugin, reserved []string, taken map[string]bool) error {
	for _, t := range p.Tools {
		if slices.Contains(reserved, t.Name) {
			return fmt.Errorf("the tool %q is reserved for the host: rename it", t.Name)
		}
		if taken[t.Name] {
			return fmt.Errorf("the program has a tool %q of its own: rename one of the two", t.Name)
		}
	}

	for _, claim := range p.claims() {
		var others []string
		for _, other := range claims[claim] {
			if other != p {
				others = append(others, other.File)
			}
		}
		if len(others) > 3 {
			others = append(others[:3], fmt.Sprintf("and %d more", len(others)-3))
		}
		if others != nil {
			return fmt.Errorf("%s is also in %s: none of them is loaded: rename or remove all but one", claim, strings.Join(others, ", "))
		}
	}
	return nil
}
