package httpapi

import (
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// secrets returns the secrets of the caller, or of the user that the operator names.
func (r *request) secrets() (server.Secrets, error) {
	user := r.get("of_user")
	if user != "" && !r.caller.Operator() {
		return server.Secrets{}, refuse(wire.CodeForbidden, "of_user is reserved for the operator")
	}
	if user == "" {
		user = r.caller.User
	}
	return r.api.service.Secrets(user), nil
}

func listSecrets(r *request, _ none) (wire.Secrets, error) {
	of, err := r.secrets()
	if err != nil {
		return wire.Secrets{}, err
	}
	return of.List(r.Context(), r.caller.Operator())
}

func setSecret(r *request, in wire.SecretValue) (none, error) {
	of, err := r.secrets()
	if err != nil {
		return none{}, err
	}
	return none{}, of.Set(r.Context(), r.PathValue("secret"), in.Value)
}

func removeSecret(r *request, _ none) (none, error) {
	of, err := r.secrets()
	if err != nil {
		return none{}, err
	}
	_, err = of.Remove(r.Context(), r.PathValue("secret"))
	return none{}, err
}
