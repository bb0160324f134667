package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProxy reaches servers through a real proxy, which is the only one that can
// resolve their names.
func TestProxy(t *testing.T) {
	w := newWorld(t)
	s := newServer(t, w.ca, serverOptions{http2: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "through") }))
	plain := newServer(t, w.ca, serverOptions{plain: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Proxy-Authorization")+"plain")
	}))
	proxy := newProxy(t)
	w.dns.set("private.example.test", []string{"10.0.0.1"})
	w.cfg.Proxy, w.cfg.ProxyResolves = "http://user:pass-"+plainSecret+"@"+proxy.addr, true
	c := w.client(t)
	p := policy(t, Rule{URL: "https://*:" + s.port + "/*"}, Rule{URL: "http://*:" + plain.port + "/*"},
		Rule{URL: s.url + "/direct/*", Private: true}, Rule{URL: "https://*.denied.test/*"}, Rule{URL: "https://8.8.8.8/*"})

	for _, url := range []string{"https://hidden.example.test:" + s.port + "/", s.url + "/", "http://hidden.example.test:" + plain.port + "/"} {
		var got Exchange
		resp, err := do(t, c, CallConfig{Policy: p, Observe: func(x Exchange) { got = x }}, Request{URL: url})
		require.NoError(t, err, url)
		require.Contains(t, []string{"through", "plain"}, string(resp.Body))
		require.Equal(t, "Basic "+(Secret{Value: "pass-" + plainSecret, Place: Place{Basic: "user"}}).basic(), proxy.auth())
		require.False(t, got.Address.IsValid())
	}
	require.Equal(t, []string{"hidden.example.test:" + s.port, "api.example.test:" + s.port, "hidden.example.test:" + plain.port}, proxy.targets())

	// Unless the proxy resolves, it does not learn of names that do not resolve here.
	w.cfg.ProxyResolves = false
	_, err := do(t, w.client(t), CallConfig{Policy: p}, Request{URL: "https://hidden.example.test:" + s.port + "/"})
	require.ErrorContains(t, err, "no such host")
	require.Empty(t, proxy.targets())

	// A private rule is for what the proxy does not reach.
	_, err = do(t, c, CallConfig{Policy: p}, Request{URL: s.url + "/direct/x"})
	require.NoError(t, err)
	_, err = do(t, c, CallConfig{Policy: p}, Request{URL: "https://private.example.test:" + s.port + "/"})
	require.ErrorContains(t, err, noHost)
	require.Empty(t, proxy.targets())

	_, err = do(t, c, CallConfig{Policy: p}, Request{URL: "https://www.denied.test/"})
	require.EqualError(t, err, "www.denied.test: the egress proxy answered 403")
	require.NotContains(t, err.(*NetworkError).Detail, plainSecret)

	// Proxy-Authorization of a proxy that is gone stays out of the error.
	w.cfg.Proxy = "http://user:pass-" + plainSecret + "@127.0.0.1:" + closedPort(t)
	_, err = do(t, w.client(t), CallConfig{Policy: p}, Request{URL: s.url + "/"})
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.(*NetworkError).Detail, plainSecret)
}

// TestProxyNames: names that this host cannot resolve go to a proxy only if it resolves
// them, and one whose servers do not answer changes nothing for any other name.
func TestProxyNames(t *testing.T) {
	const (
		silent, unknown, inner = "slow.attacker.test", "nx.attacker.test", "intranet.corp.test"
		public                 = "www.public.test"
	)
	// What net keeps for all resolvers must not be made in a bubble.
	_, err := (&net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }}).LookupHost(t.Context(), "first.test.")
	require.ErrorContains(t, err, "EOF")
	for name, resolves := range map[string]bool{"names resolve here": false, "the proxy resolves": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dns := &dnsServer{zone: map[string]func(int) []netip.Addr{}, queries: map[string]int{}}
				dns.set(inner, []string{"10.0.0.1"})
				dns.set(public, []string{"8.8.8.8"})
				var all sync.WaitGroup
				defer all.Wait()
				c, err := New(Config{Proxy: "http://proxy.test:3128", ProxyResolves: resolves, Resolver: dns.piped(&all, silent)})
				require.NoError(t, err)
				defer c.Close()
				check := func(host string) error { return c.checkProxied(t.Context(), &target{host: host}) }

				var refused *addressError
				var lost *net.DNSError
				for range 2 {
					require.ErrorAs(t, check(inner), &refused)
					require.NoError(t, check(public))
					if resolves {
						require.NoError(t, check(unknown))
						require.NoError(t, check(silent))
					} else {
						require.ErrorAs(t, check(unknown), &lost)
						require.ErrorAs(t, check(silent), &lost)
					}
				}
				if resolves {
					asked := dns.asked(silent)
					time.Sleep(silentFor)
					require.NoError(t, check(silent))
					require.Greater(t, dns.asked(silent), asked, "it is asked again")
				}
			})
		})
	}
}

func TestEnvironmentNamesNoProxy(t *testing.T) {
	w := newWorld(t)
	proxy := newProxy(t)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, "http://"+proxy.addr)
	}
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_, err := do(t, w.client(t), CallConfig{Policy: policy(t, Rule{URL: s.url + "/*"})}, Request{URL: s.url + "/"})
	require.NoError(t, err)
	require.Empty(t, proxy.targets())
}

// proxyServer is a forward proxy that sends every name to 127.0.0.1, but denies
// *.denied.test.
type proxyServer struct {
	addr string
	mu   sync.Mutex
	seen []string
	cred string
}

func newProxy(t *testing.T) *proxyServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxyServer{addr: l.Addr().String()}
	srv := &http.Server{Handler: p}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return p
}

func (p *proxyServer) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

func (p *proxyServer) auth() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cred
}

func (p *proxyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen, p.cred = append(p.seen, r.Host), r.Header.Get("Proxy-Authorization")
	p.mu.Unlock()

	host, port, _ := net.SplitHostPort(r.Host)
	if strings.HasSuffix(host, ".denied.test") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.Method != http.MethodConnect {
		r.Header.Del("Proxy-Authorization")
		out, _ := http.NewRequest(r.Method, (&url.URL{Scheme: "http", Host: "127.0.0.1:" + port, Path: r.URL.Path}).String(), nil)
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
		return
	}

	server, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	go io.Copy(server, buffered)
	io.Copy(client, server)
}
