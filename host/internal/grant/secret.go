package grant

import (
	"slices"

	"github.com/toolhost/toolhost/abi"
)

// secretsCapability grants secrets in HTTP requests. The rules of http name them.
var secretsCapability = Capability{
	Name: "secrets", Doc: "secrets in its requests over HTTP, by the rules of http",
	Missing: func(n abi.Needs, g Grant) []string { return texts(lackingSecrets(n, g), secretText) },
	Lacking: addSecrets,
	Granted: func(g Grant) (names []string) {
		for _, r := range g.HTTP {
			if name := secretText(r.Secret); r.Secret != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	},
}

func secretText(name string) string { return "secret " + name }

// lackingSecrets returns the secrets that no rule of a grant names.
func lackingSecrets(n abi.Needs, g Grant) (lacking []string) {
	for _, name := range n.Secrets {
		if !g.NamesSecret(name) && !slices.Contains(lacking, name) {
			lacking = append(lacking, name)
		}
	}
	return lacking
}

// NamesSecret reports whether an http rule names the secret.
func (g Grant) NamesSecret(secret string) bool {
	return slices.ContainsFunc(g.HTTP, func(r HTTPRule) bool { return r.Secret != "" && r.Secret == secret })
}

// addSecrets adds the secrets that a plugin lacks to the rules that it lacks. A single
// secret goes into all of its missing rules, or into the rules of its needs if none is
// missing. Several secrets go into one rule each. The operator has to choose the rest.
func addSecrets(n abi.Needs, g Grant, add *Grant) {
	names := lackingSecrets(n, g)
	if len(names) == 1 && len(add.HTTP) == 0 {
		add.HTTP = rulesOf(n.HTTP)
	}
	for i := range add.HTTP {
		if len(names) == 1 {
			add.HTTP[i].Secret = names[0]
		} else if i < len(names) {
			add.HTTP[i].Secret = names[i]
		}
	}

	for _, name := range names {
		if !add.NamesSecret(name) {
			add.HTTP = append(add.HTTP, HTTPRule{URL: "https://" + Choose + "/*", Secret: name})
		}
	}
}
