package httpapi

import "github.com/toolhost/toolhost/server/wire"

func listStores(r *request, _ none) (wire.KVStores, error) {
	return r.api.service.KV().List(r.Context())
}

func listStore(r *request, _ none) (wire.Values, error) {
	return r.api.service.KV().Keys(r.Context(), r.PathValue("plugin"), r.get("of_session"), r.get("prefix"), r.get("after"), r.number("limit", defaultPage))
}

func clearStore(r *request, _ none) (none, error) {
	return none{}, r.api.service.KV().Clear(r.Context(), r.PathValue("plugin"), r.get("of_session"))
}

func getStored(r *request, _ none) (wire.Value, error) {
	return r.api.service.KV().Get(r.Context(), r.PathValue("plugin"), r.get("of_session"), r.PathValue("key"))
}

func deleteStored(r *request, _ none) (none, error) {
	_, err := r.api.service.KV().Delete(r.Context(), r.PathValue("plugin"), r.get("of_session"), r.PathValue("key"))
	return none{}, err
}
