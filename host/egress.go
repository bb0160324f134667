package host

import (
	"net"

	"github.com/toolhost/toolhost/internal/egress"
)

// Egress is how HTTP requests reach the network. The zero Egress connects directly and
// trusts the system's certificates. Proxy variables in the environment have no effect.
//
// If a server sends unsolicited data, net/http writes its beginning to the standard
// logger. It can contain a secret that the server received, so a program should discard
// that log: log.SetOutput(io.Discard).
type Egress struct {
	// Proxy is the URL of an HTTP proxy, http or https, with an optional user and password.
	// Requests admitted by a private rule bypass it. The proxy must refuse private
	// addresses, because it resolves names itself.
	Proxy string
	// ProxyResolves leaves names that do not resolve here to the proxy. Otherwise
	// their requests fail.
	ProxyResolves bool
	// CA is a PEM bundle of additional trusted certificates.
	CA []byte
	// Resolver is the resolver of host names. Nil means the system's resolver.
	Resolver *net.Resolver
}

func (e Egress) open(shared bool) (*egress.Client, error) {
	return egress.New(egress.Config{Proxy: e.Proxy, ProxyResolves: e.ProxyResolves, CA: e.CA, Resolver: e.Resolver, Shared: shared})
}

// Check returns what is wrong with the proxy or the certificates.
func (e Egress) Check() error {
	client, err := e.open(false)
	if err == nil {
		client.Close()
	}
	return err
}

// Secrets looks up secrets, Secret is the value of one, and Place is its place in a
// request. An error that matches [ErrNoSecret] means that the secret has no value yet.
// The agent sees the text of any other error.
type (
	Secrets = egress.Secrets
	Secret  = egress.Secret
	Place   = egress.Place
)

// ErrNoSecret is the error of a secret without a value.
var ErrNoSecret = egress.ErrNoSecret

// Exchange is one hop of an HTTP request, for an audit log. It has no path, query,
// headers or bodies.
type Exchange = egress.Exchange
