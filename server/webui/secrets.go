package webui

import (
	"net/http"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// secretList is the content of the page of secrets.
type secretList struct {
	User   string // user whose values are shown; "" is everyone without a login
	Found  []wire.Secret
	Settle bool // there are secrets of users to set
}

// secrets shows the secrets, without their values. The page is not kept up to date,
// because each load queries the sources.
func (s *site) secrets(w http.ResponseWriter, r *http.Request) error {
	user := r.URL.Query().Get("user")
	if user != "" && !identity.IsUser(user) {
		return refuse(http.StatusBadRequest, "The parameter user is not the name of a user")
	}
	found, err := s.service.Secrets(user).List(r.Context(), true)
	if err != nil {
		return err
	}
	v := secretList{User: user, Found: found.Secrets}
	for _, one := range v.Found {
		v.Settle = v.Settle || one.Scope == wire.SecretOfUser
	}
	return s.answer(w, r, http.StatusOK, page{title: "Secrets", menu: "/ui/secrets", sections: []section{{"secrets", v}}})
}

// setSecret stores the value of a user's secret.
func (s *site) setSecret(r *http.Request) (to string, err error) {
	return s.changeSecret(r, "set", func(user, name string) (bool, error) {
		return true, s.service.Secrets(user).Set(r.Context(), name, r.PostForm.Get("value"))
	})
}

// removeSecret removes the value of a user's secret.
func (s *site) removeSecret(r *http.Request) (to string, err error) {
	return s.changeSecret(r, "removed", func(user, name string) (bool, error) {
		return s.service.Secrets(user).Remove(r.Context(), name)
	})
}

// changeSecret does what a posted form asks, and returns to the page.
func (s *site) changeSecret(r *http.Request, did string, act func(user, name string) (bool, error)) (to string, err error) {
	user, name := r.PostForm.Get("user"), r.PathValue("secret")
	if user != "" && !identity.IsUser(user) {
		return "", refuse(http.StatusUnprocessableEntity, "The user is not the name of a user")
	}
	changed, err := act(user, name)
	if err != nil {
		return "", err
	}
	if changed {
		s.Logger.Info("secret of a user "+did+" by an operator", "secret", name, "user", user)
	}
	return address("/ui/secrets", map[string]string{"user": user}), nil
}
