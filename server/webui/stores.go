package webui

import (
	"net/http"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxStores   = 200 // stores shown
	storePage   = 100 // values on a page of a store
	maxStoreKey = 128 // characters of a key
)

// storeList is the content of the page of stores.
type storeList struct {
	Found []wire.KVStore
	More  int // stores not shown
}

// stores shows the stores of all plugins.
func (s *site) stores(r *http.Request) (page, error) {
	found, err := s.service.KV().List(r.Context())
	if err != nil {
		return page{}, err
	}
	shown := found.Stores[:min(len(found.Stores), maxStores)]
	return page{title: "Stores", menu: "/ui/stores", sections: []section{{"stores", storeList{shown, len(found.Stores) - len(shown)}}}}, nil
}

// storeView is the content of the page of one store: a page of its values, or one of them.
type storeView struct {
	Plugin, Session string
	Prefix          string
	Values          []wire.Value
	Next            string // key after which the next page begins; "" on the last page
	Key             string // key of the value shown
	Value           resultView
	Written         wire.Value
}

// Path returns the address of the store, or of one of its values.
func (v storeView) Path(key string) string {
	path := "/ui/stores/" + url.PathEscape(v.Plugin)
	if key != "" {
		path += "/" + url.PathEscape(key)
	}
	return path
}

// Query returns the part of an address that names the session.
func (v storeView) Query() string { return address("", map[string]string{"session": v.Session}) }

// NextQuery returns the query of the next page.
func (v storeView) NextQuery() string {
	return address("", map[string]string{"after": v.Next, "prefix": v.Prefix, "session": v.Session})
}

func newStoreView(r *http.Request) (storeView, error) {
	session, err := sessionParam(r)
	return storeView{Plugin: r.PathValue("plugin"), Session: session, Prefix: r.URL.Query().Get("prefix"), Key: r.PathValue("key")}, err
}

// store shows the values of a store by key, without data.
func (s *site) store(r *http.Request) (page, error) {
	v, err := newStoreView(r)
	if err != nil {
		return page{}, err
	}
	found, err := s.service.KV().Keys(r.Context(), v.Plugin, v.Session, v.Prefix, cut(r.URL.Query().Get("after"), maxStoreKey), storePage+1)
	if err != nil {
		return page{}, err
	}
	v.Values = found.Values
	if len(v.Values) > storePage {
		v.Values = v.Values[:storePage]
		v.Next = v.Values[storePage-1].Key
	}
	return page{title: v.Plugin, menu: "/ui/stores", sections: []section{{"store", v}}}, nil
}

// value shows one value of a store.
func (s *site) value(r *http.Request) (page, error) {
	v, err := newStoreView(r)
	if err != nil {
		return page{}, err
	}
	v.Written, err = s.service.KV().Get(r.Context(), v.Plugin, v.Session, v.Key)
	if notFound(err) {
		return page{}, refuse(http.StatusNotFound, "There is no such value")
	}
	if err != nil {
		return page{}, err
	}
	v.Value = newResultView(v.Written.Value)
	return page{title: v.Key, menu: "/ui/stores", sections: []section{{"stored", v}}}, nil
}

// clearStore removes a store, and returns to the list of stores.
func (s *site) clearStore(r *http.Request) (to string, err error) {
	plugin, session := r.PathValue("plugin"), r.PostForm.Get("session")
	if err := s.service.KV().Clear(r.Context(), plugin, session); err != nil {
		return "", err
	}
	s.Logger.Info("key-value store removed by an operator", "plugin", plugin, "session", session)
	return "/ui/stores", nil
}

// removeValue removes one value, and returns to the store.
func (s *site) removeValue(r *http.Request) (to string, err error) {
	v := storeView{Plugin: r.PathValue("plugin"), Session: r.PostForm.Get("session")}
	removed, err := s.service.KV().Delete(r.Context(), v.Plugin, v.Session, r.PostForm.Get("key"))
	if err != nil {
		return "", err
	}
	if removed {
		s.Logger.Info("value of a key-value store removed by an operator", "plugin", v.Plugin, "session", v.Session)
	}
	return v.Path("") + v.Query(), nil
}
