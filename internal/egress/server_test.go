package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers over UDP on the loopback interface. Its zone can change from query
// to query.
type dnsServer struct {
	conn net.PacketConn

	mu      sync.Mutex
	zone    map[string]func(query int) []netip.Addr
	queries map[string]int
}

func newDNS(t testing.TB) *dnsServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)

	s := &dnsServer{conn: conn, zone: map[string]func(int) []netip.Addr{}, queries: map[string]int{}}
	done := make(chan struct{})
	go func() { defer close(done); s.serve() }()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

// set gives a name addresses. Names with several lists change from query to query, as
// an attacker's do; the last list stays.
func (s *dnsServer) set(name string, lists ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[name] = func(query int) []netip.Addr {
		var addrs []netip.Addr
		for _, a := range lists[min(query, len(lists)-1)] {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		return addrs
	}
}

func (s *dnsServer) asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[name]
}

func (s *dnsServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer, err := s.answer(buf[:n]); err == nil {
			s.conn.WriteTo(answer, from)
		}
	}
}

func (s *dnsServer) answer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	list := s.zone[name]
	var addrs []netip.Addr
	if list != nil {
		addrs = list(s.queries[name] / 2) // A and AAAA are asked at once
	}
	s.queries[name]++
	s.mu.Unlock()

	h.Response, h.RecursionAvailable, h.RCode = true, true, dnsmessage.RCodeSuccess
	if list == nil {
		h.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	b.StartQuestions()
	b.Question(q)
	b.StartAnswers()
	for _, a := range addrs {
		rh := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
		if a.Is4() && q.Type == dnsmessage.TypeA {
			b.AResource(rh, dnsmessage.AResource{A: a.As4()})
		}
		if !a.Is4() && q.Type == dnsmessage.TypeAAAA {
			b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	return b.Finish()
}

func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

// piped is a resolver without a network, for virtual time. It gets no answer about the name
// silent.
func (s *dnsServer) piped(all *sync.WaitGroup, silent string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		all.Go(func() {
			defer there.Close()
			for { // as over TCP: each message has its length before it
				var size [2]byte
				if _, err := io.ReadFull(there, size[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(there, query); err != nil {
					return
				}
				answer, err := s.answer(query)
				if err != nil || strings.Contains(string(query), silent[:strings.IndexByte(silent, '.')]) {
					continue
				}
				there.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}
		})
		return here, nil
	}}
}

// authority signs the certificates of the test servers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) issue(t testing.TB, expires time.Time, names ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// seen is a request as a server got it.
type seen struct {
	Proto, Method, Host, URI, Body string
	Header                         http.Header
}

// webServer is a real server, over TLS unless plain.
type webServer struct {
	port string
	url  string // of api.example.test

	quiet bool // keeps no requests

	mu   sync.Mutex
	seen []seen
}

type serverOptions struct {
	http2, plain bool
	cert         *tls.Certificate
	addr         string
}

func newServer(t testing.TB, a *authority, o serverOptions, handler http.Handler) *webServer {
	if o.addr == "" {
		o.addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", o.addr)
	require.NoError(t, err)

	s := &webServer{}
	_, s.port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	srv := &http.Server{Handler: s.record(handler), ErrorLog: log.New(io.Discard, "", 0)}
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(!o.http2)
	srv.Protocols.SetHTTP2(o.http2)

	scheme := "https"
	if o.plain {
		scheme = "http"
		go srv.Serve(l)
	} else {
		cert := o.cert
		if cert == nil {
			issued := a.issue(t, time.Now().Add(time.Hour), "example.test", "*.example.test", "evil.test", "*.evil.test", "xn--bcher-kva.test")
			cert = &issued
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*cert}}
		go srv.ServeTLS(l, "", "")
	}
	s.url = scheme + "://api.example.test:" + s.port
	t.Cleanup(func() { srv.Close() })
	return s
}

func (s *webServer) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.quiet {
			next.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, seen{r.Proto, r.Method, r.Host, r.RequestURI, string(body), r.Header.Clone()})
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// last returns the last request, and forgets all.
func (s *webServer) last() *seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) == 0 {
		return nil
	}
	last := s.seen[len(s.seen)-1]
	s.seen = nil
	return &last
}

// world is a network of a test's own.
type world struct {
	dns   *dnsServer
	ca    *authority
	cfg   Config
	names map[string]Secret
}

func newWorld(t testing.TB) *world {
	w := &world{dns: newDNS(t), ca: newAuthority(t), names: map[string]Secret{}}
	w.cfg = Config{CA: w.ca.pem(), Resolver: w.dns.resolver()}
	for _, name := range []string{"api.example.test", "www.example.test", "example.test", "a.b.example.test", "evil.test", "deep.evil.test", "xn--bcher-kva.test"} {
		w.dns.set(name, []string{"127.0.0.1"})
	}
	return w
}

// client has a network in which 127.0.0.1 counts as public: no test can have a server
// with a public address.
func (w *world) client(t testing.TB) *Client {
	c, err := New(w.cfg)
	require.NoError(t, err)
	c.trusted = netip.MustParsePrefix("127.0.0.1/32")
	t.Cleanup(c.Close)
	return c
}

func (w *world) Secret(_ context.Context, name string) (Secret, error) {
	if s, ok := w.names[name]; ok {
		return s, nil
	}
	return Secret{}, ErrNoSecret
}

func policy(t testing.TB, rules ...Rule) *Policy {
	p, err := Compile(rules)
	require.NoError(t, err)
	return p
}

// rawServer answers each connection with the same bytes.
func rawServer(t testing.TB, a *authority, answer string) string {
	cert := a.issue(t, time.Now().Add(time.Hour), "api.example.test")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })

	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Read(make([]byte, 4096))
				io.WriteString(conn, answer)
				conn.Read(make([]byte, 1))
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return "https://api.example.test:" + port
}

func closedPort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
