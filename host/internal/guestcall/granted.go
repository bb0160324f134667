package guestcall

import (
	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
)

// grantedOperations reports what was granted, for plugins that can work without it.
var grantedOperations = map[string]Operation{"granted": {func(*Call) bool { return true }, "", atOnce(grantedOperation)}}

func grantedOperation(c *Call, request []byte) int32 {
	c.Meter.Charge(readCost)
	needs, err := abi.DecodeNeeds(request)
	if err != nil {
		return c.Refuse(abi.CallInvalid, "invalid", err.Error())
	}

	missing := c.Grant.Missing(needs)
	if len(missing) > 0 || c.Readonly && (grant.Grant{}).Lacking(needs).Writes() {
		return c.respond([]byte(`{"granted":false}`))
	}
	return c.respond([]byte(`{"granted":true}`))
}
