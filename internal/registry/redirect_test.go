package registry_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/toolhost/toolhost/internal/registry"
)

// seen notes the credentials that a host gets.
type seen struct {
	fake
	credentials []string
}

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.credentials = append(s.credentials, r.Header.Get("Authorization"))
	s.fake.ServeHTTP(w, r)
}

func location(to string) answer { return answer{status: 307, header: http.Header{"Location": {to}}} }

// Registries redirect to the storage of their blobs. What is for the registry alone goes to
// no other host, and no answer leads into this machine.
func TestRedirects(t *testing.T) {
	defer registry.SetLookup(map[string]string{"inner.test": "127.0.0.1", "meta.test": "169.254.169.254", "cdn.test": "192.0.2.1"})()
	module := wasm("x")
	layer := string(digest.FromBytes(module))

	for name, c := range map[string]struct {
		to   string
		is   error
		want string
	}{
		"to a storage":          {"https://cdn.test/x", nil, ""},
		"to another port":       {"https://r.test:444/x", nil, ""},
		"to plain HTTP":         {"http://cdn.test/x?sig=a&b=c", registry.ErrPlainHTTP, "r.test leads to http://cdn.test, which is not encrypted"},
		"to a user":             {"https://a:b@cdn.test/x", registry.ErrRedirect, "cdn.test has a user and a password in its address"},
		"to this machine":       {"https://127.0.0.1/x", registry.ErrRedirect, "r.test leads to 127.0.0.1, which is an address of this machine"},
		"to a name for it":      {"https://inner.test/x", registry.ErrRedirect, "r.test leads to inner.test, which is an address of this machine"},
		"to the cloud's secret": {"https://meta.test/x", registry.ErrRedirect, "r.test leads to meta.test, which is an address of this machine"},
		"in a circle":           {"https://cdn.test/loop", registry.ErrRedirect, "more than 5 in a row"},
		"to nowhere":            {"https://none.test/x?sig=secret", nil, "no such host: none.test"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fake{"/x": {body: module}}
			f.plugin(t, f.add(wasmLayer, module))
			delete(f, layer)
			f["/v2/web/blobs/"+layer] = location(c.to)
			cdn := &seen{fake: fake{"/x": {body: module}, "/loop": location("https://cdn.test/loop")}}
			there := &seen{fake: f}
			realm := answer{status: 401, header: http.Header{"Www-Authenticate": {`Basic realm="x"`}}}
			client := &registry.Client{
				Store:      newStore(t),
				Transport:  network{"https://r.test": demand{there, realm}, "https://cdn.test": cdn, "http://cdn.test": cdn, "https://r.test:444": cdn, "https://127.0.0.1": cdn, "https://inner.test": cdn, "https://meta.test": cdn},
				Credential: auth.StaticCredential("r.test", auth.Credential{Username: "ana", Password: "secret"}),
			}

			_, err := client.Pull(t.Context(), ref(t, "oci://r.test/web:1"))

			if c.want == "" {
				require.NoError(t, err)
				require.NotEmpty(t, cdn.credentials)
			} else {
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), "sig=")
			}
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			require.Contains(t, there.credentials, "Basic YW5hOnNlY3JldA==")
			for _, got := range cdn.credentials {
				require.Empty(t, got)
			}
		})
	}
}

// demand asks for credentials first.
type demand struct {
	http.Handler
	challenge answer
}

func (d demand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") == "" {
		fake{r.URL.Path: d.challenge}.ServeHTTP(w, r)
		return
	}
	d.Handler.ServeHTTP(w, r)
}

// A registry names the service that issues tokens. It gets the credentials only if it is of
// the same domain.
func TestTokenServices(t *testing.T) {
	defer registry.SetLookup(nil)()
	module := wasm("x")
	token := answer{mediaType: "application/json", body: []byte(`{"token":"t"}`)}

	for realm, ok := range map[string]bool{
		"https://registry.corp.example/token":   true,
		"https://gitlab.corp.example/jwt/auth":  true,
		"https://evil.example/token":            false,
		"https://corp.example.evil.com/token":   false,
		"http://gitlab.corp.example/token":      false,
		"https://registry.corp.example@evil.io": false,
	} {
		t.Run(realm, func(t *testing.T) {
			f := fake{}
			f.plugin(t, f.add(wasmLayer, module))
			f["token"], f["auth"] = token, token
			evil := &seen{fake: fake{"token": token, "": token}}
			challenge := answer{status: 401, header: http.Header{"Www-Authenticate": {`Bearer realm="` + realm + `",service="r"`}}}
			hosts := network{
				"https://registry.corp.example": issuer{demand{f, challenge}, f}, "https://gitlab.corp.example": f,
				"https://evil.example": evil, "https://corp.example.evil.com": evil, "http://gitlab.corp.example": evil, "https://evil.io": evil,
			}
			client := &registry.Client{Store: newStore(t), Transport: hosts, Credential: auth.StaticCredential("registry.corp.example", auth.Credential{Username: "ana", Password: "secret"})}

			_, err := client.Pull(t.Context(), ref(t, "oci://registry.corp.example/web:1"))

			require.Equal(t, ok, err == nil, "%v", err)
			require.Empty(t, evil.credentials)
		})
	}
}

// issuer issues tokens without being asked for one.
type issuer struct{ rest, tokens http.Handler }

func (i issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		i.tokens.ServeHTTP(w, r)
		return
	}
	i.rest.ServeHTTP(w, r)
}

// Only registries of this machine, and those that are named, are asked over plain HTTP.
func TestPlainHTTP(t *testing.T) {
	f := fake{}
	f.plugin(t, f.add(wasmLayer, wasm("x")))
	hosts := network{"http://127.0.0.1:5000": f, "http://localhost": f, "http://lan.test:5000": f}
	client := &registry.Client{Store: newStore(t), Transport: hosts, PlainHTTP: []string{"lan.test:5000"}}

	for _, source := range []string{"oci://127.0.0.1:5000/web:1", "oci://localhost/web:1", "oci://lan.test:5000/web:1"} {
		_, err := client.Pull(t.Context(), ref(t, source))
		require.NoError(t, err)
	}
	hosts["http://lan.test"] = f
	_, err := client.Pull(t.Context(), ref(t, "oci://lan.test/web:1"))
	require.Error(t, err)
}

// A registry that answers once, and then not at all, ends with the caller.
func TestCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{"1": {stuck: true}}
		client := &registry.Client{Store: newStore(t), Transport: network{"https://r.test": f}, Timeout: time.Minute}
		_, err := client.Resolve(t.Context(), ref(t, "oci://r.test/web:1"))
		require.ErrorIs(t, err, registry.ErrTimeout)
		require.ErrorContains(t, err, "no end after 1m0s")
	})
}
