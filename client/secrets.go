package client

import (
	"context"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// Secrets are the secrets of a user that go into HTTP requests of plugins.
type Secrets struct {
	client *Client
	user   string
}

// Secrets returns the secrets of the caller; an operator may name a user instead.
func (c *Client) Secrets(user string) Secrets { return Secrets{c, user} }

// List returns the secrets that the user can set, without their values, by name. For an
// operator it also has those that the configuration gives a value.
func (s Secrets) List(ctx context.Context) ([]wire.Secret, error) {
	out, err := do[wire.Secrets](ctx, s.client, "GET", s.path(""), nil)
	return out.Secrets, err
}

// Set stores the value of a secret in place of the one before.
func (s Secrets) Set(ctx context.Context, name, value string) error {
	return s.client.Do(ctx, "PUT", s.path(name), wire.SecretValue{Value: value}, nil)
}

// Remove removes the value of a secret, if it has one.
func (s Secrets) Remove(ctx context.Context, name string) error {
	return s.client.Do(ctx, "DELETE", s.path(name), nil, nil)
}

func (s Secrets) path(name string) string {
	path, query := "/v1/secrets", url.Values{}
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	set(query, "of_user", s.user)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}
