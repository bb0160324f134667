package httpapi

import (
	"regexp"

	"github.com/toolhost/toolhost/server/wire"
)

// pluginForm matches names of plugins.
var pluginForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// plugin returns the name of the plugin whose key-value store is requested.
func (r *request) plugin() (string, error) {
	name := r.PathValue("plugin")
	if !pluginForm.MatchString(name) {
		return "", invalid("plugin", "expected the name of a plugin")
	}
	return name, nil
}

func listStores(r *request, _ none) (wire.KVStores, error) {
	return r.api.service.KV().List(r.Context())
}

func listStore(r *request, _ none) (wire.Values, error) {
	plugin, err := r.plugin()
	if err != nil {
		return wire.Values{}, err
	}
	return r.api.service.KV().Keys(r.Context(), plugin, r.get("of_session"), r.get("prefix"), r.get("after"), r.number("limit", defaultPage))
}

func clearStore(r *request, _ none) (none, error) {
	plugin, err := r.plugin()
	if err != nil {
		return none{}, err
	}
	return none{}, r.api.service.KV().Clear(r.Context(), plugin, r.get("of_session"))
}

func getStored(r *request, _ none) (wire.Value, error) {
	plugin, err := r.plugin()
	if err != nil {
		return wire.Value{}, err
	}
	return r.api.service.KV().Get(r.Context(), plugin, r.get("of_session"), r.PathValue("key"))
}

func deleteStored(r *request, _ none) (none, error) {
	plugin, err := r.plugin()
	if err == nil {
		_, err = r.api.service.KV().Delete(r.Context(), plugin, r.get("of_session"), r.PathValue("key"))
	}
	return none{}, err
}
