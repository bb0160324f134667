package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// do makes a request in a call of its own.
func do(t *testing.T, c *Client, cfg CallConfig, req Request) (*Response, error) {
	t.Helper()
	return c.Call(cfg).Do(context.Background(), &req)
}

// TestExchange checks what is sent, what comes back and what an audit sees.
func TestExchange(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		w := newWorld(t)
		s := newServer(t, w.ca, serverOptions{http2: proto == "HTTP/2.0"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Proto", r.Proto)
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "hello")
		}))
		w.names["key"] = Secret{Value: plainSecret, Hosts: []string{"*.example.test"}, Place: bearer}

		var got []Exchange
		cfg := CallConfig{
			Plugin: "p", User: "ana", Secrets: w, Observe: func(x Exchange) { got = append(got, x) },
			Policy: policy(t, Rule{URL: s.url + "/v1/*", Methods: []string{"PUT"}, Secret: "key"}),
		}
		call := w.client(t).Call(cfg)
		resp, err := call.Do(context.Background(), &Request{
			Method: "PUT", URL: strings.ToUpper(s.url[:8]) + s.url[8:] + "/v1/x%2fy?a=b c&d=%zz#f", Body: []byte("body"),
			Header: http.Header{"x-one": {"1", "2"}, "Host": {"api.example.test:" + s.port}, "Content-Length": {"4"}, "Connection": {"keep-alive"}, "Authorization": {"Bearer mine"}},
		})
		require.NoError(t, err)
		require.Equal(t, 201, resp.Status)
		require.Equal(t, "hello", string(resp.Body))
		require.Equal(t, []string{proto}, resp.Header["X-Proto"])
		require.Equal(t, s.url+"/v1/x%2Fy?a=b%20c&d=%zz", resp.URL)

		r := s.last()
		require.Equal(t, "PUT", r.Method)
		require.Equal(t, "api.example.test:"+s.port, r.Host)
		require.Equal(t, "/v1/x%2Fy?a=b%20c&d=%zz", r.URI)
		require.Equal(t, "body", r.Body)
		require.Equal(t, http.Header{
			"X-One": {"1", "2"}, "Authorization": {"Bearer " + plainSecret}, "Accept-Encoding": {"gzip"}, "User-Agent": {"toolhost"}, "Content-Length": {"4"},
		}, r.Header)

		require.Len(t, got, 1)
		x := got[0]
		require.Equal(t, "127.0.0.1:"+s.port, x.Address.String())
		require.Positive(t, x.Duration)
		x.Address, x.Duration = netip.AddrPort{}, 0
		require.Equal(t, Exchange{Plugin: "p", User: "ana", Method: "PUT", Scheme: "https", Host: "api.example.test:" + s.port, Secret: "key", Status: 201, Sent: 4, Received: 5}, x)
		require.Equal(t, "a [secret key] b", call.mask.string("a "+plainSecret+" b"))
	}
}

func TestBodies(t *testing.T) {
	w := newWorld(t)
	s := newServer(t, w.ca, serverOptions{http2: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Encoding", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip") // a lie for a response without a body
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		case "/exact":
			w.Header().Del("Content-Encoding")
			w.Write(make([]byte, 1000))
		}
	}))
	c := w.client(t)
	cfg := CallConfig{Policy: policy(t, Rule{URL: s.url + "/*", MaxBody: 1000})}

	for _, c2 := range []struct {
		req      Request
		status   int
		length   int
		encoding string
	}{
		{Request{URL: s.url + "/exact"}, 200, 1000, "gzip"},
		{Request{URL: s.url + "/exact", Method: "HEAD"}, 200, 0, "identity"},
		{Request{URL: s.url + "/exact", Header: http.Header{"Range": {"bytes=0-1"}}}, 200, 1000, "identity"},
		{Request{URL: s.url + "/204"}, 204, 0, "gzip"},
		{Request{URL: s.url + "/304"}, 304, 0, "gzip"},
		{Request{URL: s.url + "/empty"}, 200, 0, "gzip"},
	} {
		resp, err := do(t, c, cfg, c2.req)
		require.NoError(t, err, c2.req.URL)
		require.Equal(t, c2.status, resp.Status)
		require.Len(t, resp.Body, c2.length)
		require.Equal(t, c2.encoding, resp.Header.Get("X-Encoding"))
	}
}

// TestRebinding changes the addresses of a name between connections. Each connection
// asks once, so no answer can differ from the one that was checked.
func TestRebinding(t *testing.T) {
	w := newWorld(t)
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
	}))
	c := w.client(t)
	p := policy(t, Rule{URL: "https://*:" + s.port + "/*"})

	w.dns.set("rebind.example.test", []string{"127.0.0.1"}, []string{"10.0.0.1"})
	url := "https://rebind.example.test:" + s.port + "/"
	_, err := do(t, c, CallConfig{Policy: p}, Request{URL: url})
	require.NoError(t, err)
	require.Equal(t, 2, w.dns.asked("rebind.example.test"), "A and AAAA")

	_, err = do(t, c, CallConfig{Policy: p}, Request{URL: url})
	failed, ok := errors.AsType[*NetworkError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, ReasonAddress, failed.Refusal.Reason)
	require.Contains(t, failed.Refusal.Detail, "10.0.0.1 is a private address")

	// Of several addresses, only those that are admitted are tried.
	w.dns.set("mixed.example.test", []string{"127.0.0.2", "127.0.0.1", "::1"})
	var got Exchange
	_, err = do(t, c, CallConfig{Policy: p, Observe: func(x Exchange) { got = x }}, Request{URL: "https://mixed.example.test:" + s.port + "/"})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:"+s.port, got.Address.String())
}

// TestPrivate reaches a loopback address through a private rule, and then no other rule
// uses that connection.
func TestPrivate(t *testing.T) {
	w := newWorld(t)
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	c, err := New(w.cfg)
	require.NoError(t, err)
	defer c.Close()

	cfg := CallConfig{Policy: policy(t, Rule{URL: s.url + "/open/*"}, Rule{URL: s.url + "/private/*", Private: true})}
	_, err = do(t, c, cfg, Request{URL: s.url + "/private/x"})
	require.NoError(t, err)
	_, err = do(t, c, cfg, Request{URL: s.url + "/open/x"})
	require.ErrorContains(t, err, "the host is at a loopback address")

	for _, host := range []string{"127.0.0.1", "localhost"} {
		url := "http://" + host + ":" + s.port + "/"
		_, err = do(t, c, CallConfig{Policy: policy(t, Rule{URL: url + "*", Private: true})}, Request{URL: url})
		require.NoError(t, err, "a TLS server answers plain requests with 400")
	}
}

func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("no IPv6")
	} else {
		l.Close()
	}
	w := newWorld(t)
	s := newServer(t, w.ca, serverOptions{plain: true, addr: "[::1]:0"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	c := w.client(t)
	w.dns.set("six.example.test", []string{"::1"})

	cfg := CallConfig{Policy: policy(t, Rule{URL: "http://[0:0::1]:" + s.port + "/*", Private: true}, Rule{URL: "http://*:" + s.port + "/*"})}
	_, err := do(t, c, cfg, Request{URL: "http://[::0001]:" + s.port + "/"})
	require.NoError(t, err)
	require.Equal(t, "[::1]:"+s.port, s.last().Host)
	_, err = do(t, c, cfg, Request{URL: "http://six.example.test:" + s.port + "/"})
	require.ErrorContains(t, err, noHost)
	require.Nil(t, s.last())
}

// TestPools counts connections: requests share one only if plugin, user and secret are
// the same.
func TestPools(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	peers := map[string]int{}
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		peers[r.RemoteAddr]++
	}))
	w.names["a"] = Secret{Value: plainSecret, Hosts: []string{"api.example.test"}, Place: bearer}
	w.names["b"] = w.names["a"]
	c := w.client(t)

	p := policy(t, Rule{URL: s.url + "/*"}, Rule{URL: s.url + "/a/*", Secret: "a"}, Rule{URL: s.url + "/b/*", Secret: "b"})
	for range 3 {
		for _, cfg := range []CallConfig{{Plugin: "p"}, {Plugin: "q"}, {Plugin: "p", User: "ana"}, {Plugin: "p", User: "ben"}} {
			cfg.Policy, cfg.Secrets = p, w
			for _, path := range []string{"/", "/a/", "/b/"} {
				_, err := do(t, c, cfg, Request{URL: s.url + path})
				require.NoError(t, err)
			}
		}
	}
	require.Len(t, peers, 12)
	for _, n := range peers {
		require.Equal(t, 3, n)
	}

	for i := range maxPools + 10 {
		c.release(c.acquire(poolKey{plugin: string(rune(i + 0x100))}))
		require.LessOrEqual(t, len(c.pools), maxPools)
	}
}

// TestRotation changes a secret: the next request has the new value, and both are
// masked.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Authorization")+" old-"+plainSecret)
	}))
	call := w.client(t).Call(CallConfig{Policy: policy(t, Rule{URL: s.url + "/*", Secret: "key"}), Secrets: w})
	for _, value := range []string{"old-" + plainSecret, "new-value"} {
		w.names["key"] = Secret{Value: value, Hosts: []string{"api.example.test"}, Place: bearer}
		resp, err := call.Do(context.Background(), &Request{URL: s.url + "/"})
		require.NoError(t, err)
		require.Equal(t, "Bearer [secret key] [secret key]", string(resp.Body))
		require.Equal(t, []string{"Bearer " + value}, s.last().Header["Authorization"])
	}
}

// TestStop stops requests at each stage, and waits until the server has noticed.
func TestStop(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, path := range []string{"/before", "/during"} {
			w := newWorld(t)
			arrived, ended := make(chan struct{}), make(chan struct{})
			s := newServer(t, w.ca, serverOptions{http2: http2}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/during" {
					io.WriteString(w, "some")
					w.(http.Flusher).Flush()
				}
				close(arrived)
				<-r.Context().Done()
				close(ended)
			}))

			ctx, cancel := context.WithCancel(context.Background())
			call := w.client(t).Call(CallConfig{Policy: policy(t, Rule{URL: s.url + "/*"})})
			result := make(chan error)
			go func() {
				_, err := call.Do(ctx, &Request{URL: s.url + path})
				result <- err
			}()
			<-arrived
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
			<-ended
		}
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t)
	arrived := make(chan struct{})
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	c := w.client(t)
	call := c.Call(CallConfig{Policy: policy(t, Rule{URL: s.url + "/*"})})
	result := make(chan error)
	go func() {
		_, err := call.Do(context.Background(), &Request{URL: s.url + "/"})
		result <- err
	}()
	<-arrived
	go c.Close()
	require.ErrorIs(t, <-result, ErrClosed)
	c.Close()
	_, err := call.Do(context.Background(), &Request{URL: s.url + "/"})
	require.ErrorIs(t, err, ErrClosed)
}

// TestStopDuringBody has a body that ends after the stop: a server that sees the stop
// first can end it as if it were complete.
func TestStopDuringBody(t *testing.T) {
	c, err := New(Config{})
	require.NoError(t, err)
	defer c.Close()
	call := c.Call(CallConfig{})
	target, err := parseTarget("https://api.example.test/")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	raw := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader("half")), Request: (&http.Request{}).WithContext(ctx)}
	body, err := call.readBody(&hop{target: target}, &rule{}, raw, 100)
	require.NoError(t, err)
	require.Equal(t, "half", string(body))

	cancel()
	raw.Body = io.NopCloser(strings.NewReader("half"))
	_, err = call.readBody(&hop{target: target}, &rule{}, raw, 100)
	require.Error(t, err)
}

// TestMaskedLimit: a response that is longer than its limit once it is masked is refused.
func TestMaskedLimit(t *testing.T) {
	w := newWorld(t)
	name := strings.Repeat("k", 64)
	w.names[name] = Secret{Value: "abcdef", Hosts: []string{"api.example.test"}, Place: bearer}
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[1:])
		if r.URL.RawQuery == "header" {
			w.Header().Set("X-A", strings.Repeat("abcdef", n))
		} else {
			io.WriteString(w, strings.Repeat("abcdef", n))
		}
	}))

	cfg := CallConfig{Policy: policy(t, Rule{URL: s.url + "/*", Secret: name, MaxBody: 1000}), Secrets: w}
	for path, want := range map[string]string{
		"/13": "", "/14": "response body of api.example.test: more than 1000 bytes: the operator can raise max_body in the http rule",
		"/800?header": "", "/1000?header": "response headers of api.example.test: more than 65536 bytes",
	} {
		_, err := do(t, w.client(t), cfg, Request{URL: s.url + path})
		if want == "" {
			require.NoError(t, err, path)
		} else {
			require.EqualError(t, err, want)
			require.IsType(t, &LimitError{}, err)
		}
	}
}

// ending is a context that is canceled when it has been asked a number of times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestStopDuringMask: masking stops with the request, where nothing is found and where much
// is.
func TestStopDuringMask(t *testing.T) {
	c, err := New(Config{})
	require.NoError(t, err)
	defer c.Close()
	call := c.Call(CallConfig{})
	call.mask.add("key", "abcdef")
	target, err := parseTarget("https://api.example.test/")
	require.NoError(t, err)

	for _, text := range []string{"abcdeX", "abcdef"} {
		raw := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(strings.Repeat(text, 1<<16)))}
		raw.Request = (&http.Request{}).WithContext(&ending{t.Context(), 4}) // after the body was read
		_, err = call.response(&hop{target: target}, &rule{}, raw, 1<<20)
		require.ErrorContains(t, err, "api.example.test")
		require.Equal(t, context.Canceled.Error(), err.(*NetworkError).Detail)
	}
}

func TestAbsolute(t *testing.T) {
	for host, want := range map[string]string{"api.example.test": "api.example.test.", "localhost": "localhost", "1.2.3.4": "1.2.3.4", "::1": "::1"} {
		addr, _ := netip.ParseAddr(host)
		require.Equal(t, want, absolute(host, addr))
	}
}

func TestNewRefuses(t *testing.T) {
	for _, proxy := range []string{"proxy:3128", "ftp://proxy", "socks5://proxy", "http://user:" + plainSecret + "@", "http://user:" + plainSecret + "%zz@proxy"} {
		_, err := New(Config{Proxy: proxy})
		require.ErrorContains(t, err, "invalid egress proxy: want http://HOST:PORT")
		require.NotContains(t, err.Error(), plainSecret)
	}
	_, err := New(Config{CA: []byte("nonsense")})
	require.EqualError(t, err, "invalid egress CA bundle: no certificate in PEM")
}

// TestRefusalIsObserved checks that the operator sees what the agent sees, and more. With a
// wildcard, the agent does not see which names exist in the operator's network.
func TestRefusalIsObserved(t *testing.T) {
	w := newWorld(t)
	w.dns.set("private.example.test", []string{"10.0.0.1"})

	var got Exchange
	for rule, want := range map[string]string{
		"https://private.example.test/*": `GET https://private.example.test/a is refused: the host is at a private address; the operator can allow it with: http: [{url: "https://private.example.test/*", methods: [GET], private: true}]`,
		"https://*.example.test/*":       "private.example.test: " + noHost,
		"https://*/*":                    "private.example.test: " + noHost,
	} {
		cfg := CallConfig{Plugin: "p", Policy: policy(t, Rule{URL: rule}), Observe: func(x Exchange) { got = x }}
		_, err := do(t, w.client(t), cfg, Request{URL: "https://private.example.test/a?token=x"})
		require.EqualError(t, err, want)
		require.Contains(t, got.Refusal, "10.0.0.1 is a private address")
		require.NotContains(t, got.Refusal, "token")

		if _, err := do(t, w.client(t), cfg, Request{URL: "https://nowhere.example.test/a"}); rule != "https://private.example.test/*" {
			require.EqualError(t, err, "nowhere.example.test: "+noHost)
		}
	}
}

func TestRepeatable(t *testing.T) {
	for _, c := range []struct {
		method, name, override string
		want                   bool
	}{
		{"", "", "", true}, {"get", "", "", true}, {"PUT", "", "", true}, {"DELETE", "", "", true}, {"POST", "", "", false}, {"PATCH", "", "", false},
		{"GET", "X-HTTP-Method-Override", "POST", false}, {"", "x_http_method", "patch", false}, {"PUT", "X-Method-Override", "DELETE", true}, {"POST", "X-HTTP-Method-Override", "PUT", false},
	} {
		req := Request{Method: c.method, Header: http.Header{c.name: {c.override}}}
		require.Equal(t, c.want, req.Repeatable(), "%+v", c)
	}
}

// TestConnectionThatCloses: a server closes connections that were idle when the next request
// arrives. A request that may be repeated is repeated; any other is sent once, over a
// connection of its own.
func TestConnectionThatCloses(t *testing.T) {
	w := newWorld(t)
	cert := w.ca.issue(t, time.Now().Add(time.Hour), "api.example.test")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	require.NoError(t, err)
	var mu sync.Mutex
	arrived := map[string]int{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for first := true; ; first = false {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					mu.Lock()
					arrived[req.Method]++
					mu.Unlock()
					if !first {
						return
					}
					io.Copy(io.Discard, req.Body)
					io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
		}
	})
	c := w.client(t)
	t.Cleanup(func() { c.Close(); l.Close(); serving.Wait() })

	_, port, _ := net.SplitHostPort(l.Addr().String())
	url := "https://api.example.test:" + port
	cfg := CallConfig{Policy: policy(t, Rule{URL: url + "/*", Methods: []string{"*"}})}
	const rounds = 5
	for range rounds {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			resp, err := do(t, c, cfg, Request{URL: url + "/", Method: method, Body: []byte("x")})
			require.NoError(t, err, method)
			require.Equal(t, "ok", string(resp.Body))
		}
	}
	require.Equal(t, rounds, arrived["POST"])
	require.Equal(t, rounds, arrived["PATCH"])
}

// TestBodiless: after a response that must not have a body, its connection is not used
// again: a body that the server has sent nevertheless would be the next response.
func TestBodiless(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		w := newWorld(t)
		var addrs []string
		s := newServer(t, w.ca, serverOptions{http2: http2}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			addrs = append(addrs, r.RemoteAddr)
			status, _ := strconv.Atoi(r.URL.Path[1:])
			w.WriteHeader(status)
		}))
		c := w.client(t)
		for _, req := range []Request{{URL: "/200"}, {URL: "/204"}, {URL: "/304"}, {URL: "/200", Method: "HEAD"}, {URL: "/200"}, {URL: "/200"}} {
			req.URL = s.url + req.URL
			_, err := do(t, c, CallConfig{Policy: policy(t, Rule{URL: s.url + "/*"})}, req)
			require.NoError(t, err)
		}

		want := []bool{true, false, false, false, true}
		for i := range want {
			require.Equal(t, want[i] || http2, addrs[i] == addrs[i+1], "%s: request %d", name, i+1)
		}
	}
}
