package httpapi_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/identity"
)

const (
	issuerURL = "http://localhost:9000/realm"
	audience  = "https://tools.example/mcp"
)

// What docs/http.md promises of the issuer's keys and tokens.
const (
	keysFresh   = 10 * time.Minute
	keysLast    = time.Hour
	keysPause   = 10 * time.Second
	keysTimeout = 5 * time.Second
	clockSkew   = 30 * time.Second
	maxToken    = 16 << 10
)

// The keys of issuers. They are made only once, because that takes long.
var (
	rsaKey     = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	otherRSA   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	p256Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	p384Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)) })
	ed25519Key = sync.OnceValue(func() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, 32)) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// issuer is an OAuth 2 issuer in memory: its metadata and its keys, over HTTP.
type issuer struct {
	t   testing.TB
	net *memory
	mux *http.ServeMux

	mu    sync.Mutex
	keys  jose.JSONWebKeySet
	asked map[string]int // by path
	fault http.HandlerFunc
}

// startIssuer starts an issuer with one key of each kind.
func startIssuer(t testing.TB) *issuer {
	i := &issuer{t: t, net: &memory{conns: make(chan net.Conn), closed: make(chan struct{})}, mux: http.NewServeMux(), asked: map[string]int{}}
	i.publish("rsa", &rsaKey().PublicKey)
	i.publish("p256", &p256Key().PublicKey)
	i.publish("p384", &p384Key().PublicKey)
	i.publish("ed25519", ed25519Key().Public())
	i.describe("/realm/.well-known/openid-configuration", issuerURL, issuerURL+"/keys")
	i.mux.HandleFunc("/realm/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		_ = json.NewEncoder(w).Encode(i.keys)
	})
	server := httptest.NewUnstartedServer(i)
	server.Listener = i.net
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		time.Sleep(time.Second) // net/http lingers over connections
	})
	return i
}

// describe makes the issuer serve metadata at a path.
func (i *issuer) describe(path, name, keys string) {
	i.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": name, "jwks_uri": keys})
	})
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.asked[r.URL.Path]++
	serve := i.fault
	i.mu.Unlock()
	if serve == nil {
		serve = i.mux.ServeHTTP
	}
	serve(w, r)
}

// breaks makes the issuer answer all requests with this fault; nil repairs it.
func (i *issuer) breaks(fault http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fault = fault
}

// fetches returns how often the issuer was asked for its keys.
func (i *issuer) fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked["/realm/keys"]
}

func (i *issuer) publish(id string, key crypto.PublicKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys.Keys = append(i.keys.Keys, jose.JSONWebKey{KeyID: id, Key: key})
}

// withdraw removes all keys.
func (i *issuer) withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys.Keys = nil
}

// trust returns an OAuth configuration that accepts the issuer's tokens.
func (i *issuer) trust(scopes ...string) *identity.OAuth {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		require.Equal(i.t, "localhost:9000", address)
		client, server := net.Pipe()
		select {
		case i.net.conns <- server:
			return client, nil
		case <-i.net.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &identity.OAuth{
		Issuer: issuerURL, Audience: audience, Scopes: scopes,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}
}

// claims of a valid token for a user, with changes; nil removes one.
func claimsOf(subject string, changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": issuerURL, "aud": audience, "sub": subject, "scope": "tools other",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// sign makes a token. The headers are those besides alg.
func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, headers map[string]any, claims any) string {
	t.Helper()
	options := &jose.SignerOptions{}
	for name, value := range headers {
		options.WithHeader(jose.HeaderKey(name), value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
	require.NoError(t, err)
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	jws, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return token
}

// tokenOf returns a valid token.
func tokenOf(t testing.TB, subject string) string {
	return sign(t, jose.RS256, rsaKey(), map[string]any{"kid": "rsa", "typ": "at+jwt"}, claimsOf(subject, nil))
}

// as returns the header for a user's requests.
func as(t testing.TB, subject string, headers ...string) []string {
	return append([]string{"Authorization", "Bearer " + tokenOf(t, subject)}, headers...)
}
