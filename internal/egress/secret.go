package egress

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Place is where a secret goes in a request. Exactly one field is set.
type Place struct {
	Bearer bool   // Authorization: Bearer VALUE
	Header string // a header with this name
	Query  string // a query parameter with this name
	Basic  string // Authorization: Basic, with this user; the value is the password
}

// Secret is a value that is added to requests.
type Secret struct {
	Value string
	Hosts []string // names, addresses and "*.example.com", with any port; never "*"
	Place Place
	HTTP  bool // whether it may also be sent over http
}

// Secrets looks up the values of secrets. Do calls it once for each hop that needs
// one, so a new value takes effect immediately. Before the first request of a call it
// also looks up the secrets of all other rules, to mask them.
type Secrets interface {
	// Secret returns the secret with that name for the user of the call. If it has no
	// value but one can be set, the error matches [ErrNoSecret]. The text of any other
	// error reaches the agent.
	Secret(ctx context.Context, name string) (Secret, error)
}

// Check returns what is wrong with a secret: its place, its hosts or its value. The
// error does not contain the value.
func (s Secret) Check() error {
	if err := s.Place.Check(); err != nil {
		return err
	}
	if err := CheckHosts(s.Hosts); err != nil {
		return err
	}

	switch {
	case len(s.Value) < MinSecret:
		return fmt.Errorf("the value is shorter than %d bytes: it could not be masked", MinSecret)
	case len(s.Value) > MaxSecret:
		return fmt.Errorf("the value is longer than %d bytes", MaxSecret)
	case s.Place.Query == "" && s.Place.Basic == "" && !httpguts.ValidHeaderFieldValue(s.Value):
		return errors.New("the value has a line break or another control character")
	}
	return nil
}

// Check returns what is wrong with a place.
func (p Place) Check() error {
	set := 0
	for _, on := range []bool{p.Bearer, p.Header != "", p.Query != "", p.Basic != ""} {
		if on {
			set++
		}
	}

	switch {
	case set != 1:
		return errors.New("want exactly one of bearer, header, query and basic")
	case p.Header != "" && (!httpguts.ValidHeaderFieldName(p.Header) || headerRule(p.Header) != headerFree):
		return fmt.Errorf("header %q: not a header that a secret can go into", p.Header)
	case strings.ContainsAny(p.Basic, ":\r\n\x00"):
		return errors.New("basic: a user has no colon and no control character")
	}
	return nil
}

// apply adds the secret to a request and returns the new query. It replaces what the
// plugin has set in its place.
func (s Secret) apply(h http.Header, query string) string {
	switch {
	case s.Place.Bearer:
		h["Authorization"] = []string{"Bearer " + s.Value}
	case s.Place.Basic != "":
		h["Authorization"] = []string{"Basic " + s.basic()}
	case s.Place.Header != "":
		maps.DeleteFunc(h, func(key string, _ []string) bool { return alike(key, s.Place.Header) })
		h[http.CanonicalHeaderKey(s.Place.Header)] = []string{s.Value}
	case s.Place.Query != "":
		query = removeParam(query, s.Place.Query)
		if query != "" {
			query += "&"
		}
		query += url.QueryEscape(s.Place.Query) + "=" + url.QueryEscape(s.Value)
	}
	return query
}

// alike compares header names as gateways do that turn dashes into underscores.
func alike(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "_", "-"), strings.ReplaceAll(b, "_", "-"))
}

// removeParam removes the parameters with this name from a query.
func removeParam(query, name string) string {
	params := strings.Split(query, "&")
	params = slices.DeleteFunc(params, func(p string) bool {
		key, _, _ := strings.Cut(p, "=")
		if decoded, err := url.QueryUnescape(key); err == nil {
			key = decoded
		}
		return p == "" || strings.EqualFold(key, name)
	})
	return strings.Join(params, "&")
}

func (s Secret) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(s.Place.Basic + ":" + s.Value))
}
