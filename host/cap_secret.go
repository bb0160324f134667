package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/toolhost/toolhost/abi"
)

// secretsCapability grants secrets in HTTP requests. The rules of http name them.
var secretsCapability = Capability{
	Name: "secrets", Doc: "secrets in its requests over HTTP, by the rules of http",
	Missing: func(n abi.Needs, g Grant) (missing []string) {
		for _, name := range lackingSecrets(n, g) {
			missing = append(missing, secretText(name))
		}
		return missing
	},
	Lacking: func(n abi.Needs, g Grant, add *Grant) { addSecrets(n, g, add) },
	Granted: func(g Grant) (names []string) {
		for _, r := range g.HTTP {
			if name := secretText(r.Secret); r.Secret != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	},
	ops: map[string]operation{"secret.exists": secretExists},
}

func secretText(name string) string { return "secret " + name }

// lackingSecrets returns the secrets that no rule of a grant names.
func lackingSecrets(n abi.Needs, g Grant) (lacking []string) {
	for _, name := range n.Secrets {
		if !g.names(name) && !slices.Contains(lacking, name) {
			lacking = append(lacking, name)
		}
	}
	return lacking
}

// names reports whether an http rule names the secret.
func (g Grant) names(secret string) bool {
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
		if !add.names(name) {
			add.HTTP = append(add.HTTP, HTTPRule{URL: "https://" + Choose + "/*", Secret: name})
		}
	}
}

// secretExists reports whether a secret named by the plugin's rules has a value.
// Plugins never see the value.
var secretExists = operation{
	func(c *call) bool {
		return slices.ContainsFunc(c.Policy.HTTP, func(r HTTPRule) bool { return r.Secret != "" })
	},
	"no secret goes into the requests of this plugin: have the operator name one in a rule of its http grant", secretExistsOperation,
}

func secretExistsOperation(c *call, request []byte) (work, int32) {
	c.meter.Charge(readCost)
	var in struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Name == nil {
		return nil, c.refuse(abi.CallInvalid, "invalid", `expected {"name": text}`)
	}
	if !c.Policy.names(*in.Name) {
		return nil, c.deny("no rule of this plugin's http grant names this secret")
	}
	if c.Secrets == nil {
		return nil, c.respond([]byte(`{"exists":false}`))
	}

	return func(ctx context.Context) end {
		until, done := c.untilStopped(ctx)
		defer done()
		_, err := c.Secrets.Secret(until, *in.Name)
		canceled := ctx.Err() != nil
		return end{finish: func() int32 { return answerSecret(c, *in.Name, err, canceled) }}
	}, 0
}

// answerSecret responds to the operation secret.exists.
func answerSecret(c *call, name string, err error, canceled bool) int32 {
	switch {
	case c.stopping(), canceled && err != nil:
		return c.refuseCanceled()
	case err == nil:
		return c.respond([]byte(`{"exists":true}`))
	case errors.Is(err, ErrNoSecret):
		return c.respond([]byte(`{"exists":false}`))
	}
	c.host.log.Warn("a secret cannot be read", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "secret", name, "error", err)
	return c.refuse(abi.CallFailed, "failed", "the secret cannot be read now")
}
