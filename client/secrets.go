package client

import (
	"context"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// Secrets gives access to the secrets of a user, which the server inserts into HTTP
// requests of plugins.
type Secrets struct {
	client *Client
	user   string
}

// Secrets returns the secrets of a user. With an empty user, it returns the caller's
// secrets. Only the operator may name a user.
func (c *Client) Secrets(user string) Secrets { return Secrets{c, user} }

// List returns the secrets that the user can set, sorted by name and without their values.
// The operator also gets those whose value comes from the configuration.
func (s Secrets) List(ctx context.Context) ([]wire.Secret, error) {
	out, err := do[wire.Secrets](ctx, s.client, "GET", s.path(""), nil)
	return out.Secrets, err
}

// Set stores the value of a secret, and replaces the previous value.
func (s Secrets) Set(ctx context.Context, name, value string) error {
	return s.client.Do(ctx, "PUT", s.path(name), wire.SecretValue{Value: value}, nil)
}

// Remove removes the value of a secret. It is not an error if the secret has no value.
func (s Secrets) Remove(ctx context.Context, name string) error {
	return s.client.Do(ctx, "DELETE", s.path(name), nil, nil)
}

func (s Secrets) path(name string) string {
	path, query := "/v1/secrets", url.Values{}
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	set(query, "of_user", s.user)
	return withQuery(path, query)
}
