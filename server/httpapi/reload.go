package httpapi

import (
	"context"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// reload reloads the configuration and the plugins. It continues if the client
// disconnects, so that a reload is never left half done.
func reload(r *request, _ none) (wire.Reload, error) {
	ctx := context.WithoutCancel(r.Context())
	out, err := r.api.reload(ctx)
	if err != nil && server.ReasonOf(err).Code == wire.CodeInternal { // the operator may see everything about the configuration
		err = refuse(wire.CodeInvalid, "%s", err.Error())
	}
	return out, err
}
