package host

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/toolhost/toolhost/abi"
)

// secretExists says whether a secret that the plugin's rules name has a value, and no
// more: plugins never see values.
var secretExists = operation{
	func(c *call) bool {
		return slices.ContainsFunc(c.Policy.HTTP, func(r HTTPRule) bool { return r.Secret != "" })
	},
	"no secret goes into the requests of this plugin: have the operator name one in a rule of its http grant", secretExistsOperation,
}

func secretExistsOperation(c *call, request []byte) int32 {
	c.meter.charge(readCost)
	var in struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Name == nil {
		return c.refuse(abi.CallInvalid, "invalid", `expected {"name": text}`)
	}
	if !slices.ContainsFunc(c.Policy.HTTP, func(r HTTPRule) bool { return r.Secret != "" && r.Secret == *in.Name }) {
		return c.deny("no rule of this plugin's http grant names this secret")
	}
	if c.Secrets == nil {
		return c.respond([]byte(`{"exists":false}`))
	}

	ctx, done := c.untilStopped()
	defer done()
	c.guest.Idle()
	_, err := c.Secrets.Secret(ctx, *in.Name)
	c.guest.Compute()
	c.meter.check()
	switch {
	case c.stopping():
		return c.refuseStopped()
	case err == nil:
		return c.respond([]byte(`{"exists":true}`))
	case errors.Is(err, ErrNoSecret):
		return c.respond([]byte(`{"exists":false}`))
	}
	c.host.log.Warn("a secret cannot be read", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "secret", *in.Name, "error", err)
	return c.refuse(abi.CallFailed, "failed", "the secret cannot be read now")
}
