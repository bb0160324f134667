package registry

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// DefaultTimeout is the time limit on an operation if [Client].Timeout is 0. It is enough
// for the largest plugin over a slow connection.
const DefaultTimeout = 10 * time.Minute

// Client accesses registries. Its fields must not change after its first use. It is safe for
// concurrent use.
type Client struct {
	// Store keeps the pulled plugins. Push and Resolve do not need it.
	Store *Store
	// PlainHTTP lists registries, as HOST or HOST:PORT, that are contacted over plain HTTP.
	// Registries on this machine always use plain HTTP, all others HTTPS.
	PlainHTTP []string
	// Credential returns the credentials for a registry. If it is nil, all access is
	// anonymous. See also [DockerCredentials].
	Credential auth.CredentialFunc
	// Attachments maps file name endings to media types. Pull also fetches the attached
	// documents with these media types, and [Store.FS] gives their files these endings.
	Attachments map[string]string
	// Prefer reports whether Pull prefers a document to others with the same ending. If it
	// prefers none, or is nil, Pull takes the first document.
	Prefer func(ending string, module, document []byte) bool
	// Timeout is the time limit of each operation; 0 means DefaultTimeout.
	Timeout time.Duration
	// Transport sends the requests; nil selects a transport with its own limits.
	Transport http.RoundTripper
}

// DockerCredentials returns the credentials that docker login has stored, either in
// $DOCKER_CONFIG/config.json or ~/.docker/config.json, or in the credential helper
// configured there.
func DockerCredentials() (auth.CredentialFunc, error) {
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("the configuration of docker: %w", err)
	}
	return credentials.Credential(store), nil
}

// userAgent identifies the program to registries.
const userAgent = "toolhost"

// repository returns the repository of a reference. Its requests follow the rules of
// [guard].
func (c *Client) repository(ref Reference) (*remote.Repository, error) {
	if err := checkHost(ref.Registry); err != nil { // the reference may not come from ParseReference
		return nil, fmt.Errorf("%w: %v", ErrReference, err)
	}
	plain := isLoopback(ref.Registry) || slices.Contains(c.PlainHTTP, ref.Registry)

	base := c.Transport
	if base == nil {
		base = transport
	}
	host := ref.oras().Host() // docker.io uses another host
	client := &auth.Client{
		Client: &http.Client{
			Transport:     retry.NewTransport(&guard{base: base, host: host, plain: plain}),
			CheckRedirect: checkRedirect,
		},
		Header:     http.Header{"User-Agent": {userAgent}},
		Credential: c.Credential,
		Cache:      auth.NewCache(),
	}
	return &remote.Repository{
		Client: client, Reference: ref.oras(), PlainHTTP: plain,
		ManifestMediaTypes:   manifestTypes,
		MaxMetadataBytes:     maxManifest,
		ReferrerListMaxPages: maxReferrerPages,
	}, nil
}

// limit limits the time that an operation takes.
func (c *Client) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w: no end after %v", ErrTimeout, timeout))
}
