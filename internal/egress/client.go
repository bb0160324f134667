package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	idleTimeout = time.Minute
	// lookupTimeout is the timeout for looking up a name here that the proxy can resolve.
	lookupTimeout = time.Second
	silentFor     = time.Minute // how long a name without an answer is not looked up again
	maxSilents    = 256         // number of such names
	maxPools      = 128         // transports kept for reuse
	maxIdle       = 4           // idle connections per transport
)

// Client makes the requests of one host's plugins. It is safe for concurrent use.
type Client struct {
	cfg   Config
	proxy *url.URL
	roots *x509.CertPool

	hosts, plugins gates

	ctx   context.Context
	close context.CancelFunc
	calls sync.WaitGroup

	mu     sync.Mutex
	pools  map[poolKey]*pool
	silent map[string]time.Time // when names without an answer may be looked up again

	// trusted holds special addresses that count as public: for tests, whose
	// servers have no public address.
	trusted netip.Prefix
}

// poolKey separates connections: requests with different keys never share one.
type poolKey struct {
	plugin, user, secret string
	private              bool
	once                 bool // whether each connection serves only one request
}

type pool struct {
	transport *http.Transport
	busy      int
}

// New validates a configuration and returns a Client.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, pools: map[poolKey]*pool{}, silent: map[string]time.Time{}}
	c.hosts.max, c.hosts.shared, c.hosts.of = perHost, cfg.Shared, "to one host"
	c.plugins.max, c.plugins.shared, c.plugins.of = perPlugin, cfg.Shared, "of one plugin"

	if err := c.setProxy(cfg.Proxy); err != nil {
		return nil, err
	}
	if err := c.setRoots(cfg.CA); err != nil {
		return nil, err
	}
	c.ctx, c.close = context.WithCancel(context.Background())
	return c, nil
}

func (c *Client) setProxy(raw string) error {
	if raw == "" {
		return nil
	}

	// The error of url.Parse would repeat the password.
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("invalid egress proxy: want http://HOST:PORT or https://HOST:PORT")
	}

	c.proxy = u
	return nil
}

func (c *Client) setRoots(pem []byte) error {
	if len(pem) == 0 {
		return nil
	}

	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // Windows and macOS add theirs when they verify
	}
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("invalid egress CA bundle: no certificate in PEM")
	}
	c.roots = roots
	return nil
}

// Close stops requests in flight and waits for them. Later ones fail with
// [ErrClosed].
func (c *Client) Close() {
	c.mu.Lock()
	c.close()
	c.mu.Unlock()
	c.calls.Wait()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.evict()
}

func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

// acquire returns the pool of a key. Return it with release.
func (c *Client) acquire(key poolKey) *pool {
	c.mu.Lock()
	defer c.mu.Unlock()

	p := c.pools[key]
	if p == nil {
		if len(c.pools) >= maxPools {
			c.evict()
		}
		p = &pool{transport: c.transport(key.private, key.once)}
		c.pools[key] = p
	}
	p.busy++
	return p
}

func (c *Client) release(p *pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.busy--
}

// evict removes unused pools. If all are in use, there may be more than the limit, but no
// more than there are requests in flight.
func (c *Client) evict() {
	for key, p := range c.pools {
		if p.busy == 0 {
			p.transport.CloseIdleConnections()
			delete(c.pools, key)
		}
	}
}

func (c *Client) transport(private, once bool) *http.Transport {
	t := &http.Transport{
		DisableKeepAlives:      once,
		DialContext:            c.dial(private),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.roots},
		TLSHandshakeTimeout:    dialTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		MaxResponseHeaderBytes: MaxHeaderBytes,
		DisableCompression:     true, // the limit applies to decoded data
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second},
	}

	if c.proxied(private) {
		t.Proxy = http.ProxyURL(c.proxy)
		t.DialContext = c.dialProxy
		t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode != http.StatusOK {
				return proxyError(resp.StatusCode)
			}
			return nil
		}
	}
	return t
}

// proxied reports whether requests use the proxy. Private rules name hosts that the
// proxy would not reach.
func (c *Client) proxied(private bool) bool { return c.proxy != nil && !private }

// dial connects to an address that it has checked. The check runs after the socket
// is created and before it connects, for each address that the dialer tries, so no
// second look-up can lead elsewhere.
func (c *Client) dial(private bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		named, _ := netip.ParseAddr(host)

		check := func(_ context.Context, _, address string, _ syscall.RawConn) error {
			peer, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return c.admit(peer.Addr(), private, named)
		}
		return c.connect(ctx, network, net.JoinHostPort(absolute(host, named), port), check)
	}
}

func (c *Client) dialProxy(ctx context.Context, network, addr string) (net.Conn, error) {
	return c.connect(ctx, network, addr, nil)
}

// connect dials, and gives up when the client is closed, because a transport dials with
// a context that outlives the request.
func (c *Client) connect(ctx context.Context, network, addr string, check func(context.Context, string, string, syscall.RawConn) error) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	d := net.Dialer{Timeout: dialTimeout, Resolver: c.cfg.Resolver, ControlContext: check}
	return d.DialContext(ctx, network, addr)
}

// absolute keeps the resolver from appending its search domains to a name with a
// dot. A name without a dot is a service of the network, and needs them.
func absolute(host string, addr netip.Addr) string {
	if strings.Contains(host, ".") && !addr.IsValid() {
		return host + "."
	}
	return host
}

func (c *Client) admit(addr netip.Addr, private bool, named netip.Addr) error {
	if c.trusted.Contains(addr.Unmap()) {
		return nil
	}
	return admitAddress(addr, private, named)
}

// checkProxied refuses names that do not resolve to public addresses here. A name that
// does not resolve here goes to the proxy only with [Config].ProxyResolves.
func (c *Client) checkProxied(ctx context.Context, t *target) error {
	if t.addr.IsValid() {
		return c.admit(t.addr, false, netip.Addr{})
	}

	timeout := dialTimeout
	if c.cfg.ProxyResolves {
		if c.isSilent(t.host) {
			return nil
		}
		timeout = lookupTimeout
	}
	lookup, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addrs, err := cmp.Or(c.cfg.Resolver, net.DefaultResolver).LookupNetIP(lookup, "ip", absolute(t.host, t.addr))
	switch {
	case err != nil && !c.cfg.ProxyResolves:
		return err
	case err != nil && lookup.Err() != nil && ctx.Err() == nil:
		c.setSilent(t.host)
	}

	for _, a := range addrs {
		if err := c.admit(a, false, netip.Addr{}); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) isSilent(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.silent[name])
}

func (c *Client) setSilent(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.silent) >= maxSilents {
		clear(c.silent)
	}
	c.silent[name] = time.Now().Add(silentFor)
}
