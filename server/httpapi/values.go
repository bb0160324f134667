package httpapi

import (
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

func listValues(r *request, _ none) (wire.Values, error) { return r.session.Values().List(r.Context()) }

func getValue(r *request, _ none) (wire.Value, error) {
	return r.session.Values().Get(r.Context(), r.PathValue("key"))
}

// putValue stores a value, if the stored value has the expected version.
func putValue(r *request, in wire.SetValue) (wire.Value, error) {
	version := int64(server.AnyVersion)
	if in.Version != nil {
		if version = *in.Version; version < 0 {
			return wire.Value{}, invalid("version", "expected the version of a value, or 0 for none")
		}
	}
	if in.Value == nil {
		return wire.Value{}, invalid("value", "required")
	}
	return r.session.Values().Set(r.Context(), r.PathValue("key"), in.Value, version)
}

func deleteValue(r *request, _ none) (none, error) {
	_, err := r.session.Values().Delete(r.Context(), r.PathValue("key"), int64(r.number("version", server.AnyVersion)))
	return none{}, err
}
