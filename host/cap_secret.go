package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
)

// secretOperations reports whether a secret named by the plugin's rules has a value.
// Plugins never see the value.
var secretOperations = map[string]operation{"secret.exists": {
	func(c *call) bool {
		return slices.ContainsFunc(c.Policy.HTTP, func(r grant.HTTPRule) bool { return r.Secret != "" })
	},
	"no secret goes into the requests of this plugin: have the operator name one in a rule of its http grant", secretExistsOperation,
}}

func secretExistsOperation(c *call, request []byte) (work, int32) {
	c.meter.Charge(readCost)
	var in struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Name == nil {
		return nil, c.refuse(abi.CallInvalid, "invalid", `expected {"name": text}`)
	}
	if !c.Policy.NamesSecret(*in.Name) {
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
