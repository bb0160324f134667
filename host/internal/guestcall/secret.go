package guestcall

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/internal/egress"
)

// secretOperations reports whether a secret named by the plugin's rules has a value.
// Plugins never see the value.
var secretOperations = map[string]Operation{"secret.exists": {
	func(c *Call) bool {
		return slices.ContainsFunc(c.Grant.HTTP, func(r grant.HTTPRule) bool { return r.Secret != "" })
	},
	"no secret goes into the requests of this plugin: have the operator name one in a rule of its http grant", secretExistsOperation,
}}

func secretExistsOperation(c *Call, request []byte) (Work, int32) {
	c.Meter.Charge(readCost)
	var in struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Name == nil {
		return nil, c.Refuse(abi.CallInvalid, "invalid", `expected {"name": text}`)
	}
	if !c.Grant.NamesSecret(*in.Name) {
		return nil, c.deny("no rule of this plugin's http grant names this secret")
	}
	if c.Secrets == nil {
		return nil, c.respond([]byte(`{"exists":false}`))
	}

	return func(ctx context.Context) End {
		until, done := c.untilStopped(ctx)
		defer done()
		_, err := c.Secrets.Secret(until, *in.Name)
		canceled := ctx.Err() != nil
		return End{Finish: func() int32 { return answerSecret(c, *in.Name, err, canceled) }}
	}, 0
}

// answerSecret responds to the operation secret.exists.
func answerSecret(c *Call, name string, err error, canceled bool) int32 {
	switch {
	case c.IsStopping(), canceled && err != nil:
		return c.RefuseCanceled()
	case err == nil:
		return c.respond([]byte(`{"exists":true}`))
	case errors.Is(err, egress.ErrNoSecret):
		return c.respond([]byte(`{"exists":false}`))
	}
	c.Log.Warn("a secret cannot be read", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "secret", name, "error", err)
	return c.Refuse(abi.CallFailed, "failed", "the secret cannot be read now")
}
