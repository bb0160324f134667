package httpapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// Which access tokens are accepted, and which user each belongs to.
func TestTokensThatAreTaken(t *testing.T) {
	rs := func(headers map[string]any, changes map[string]any) func(*testing.T) string {
		return func(t *testing.T) string { return sign(t, jose.RS256, rsaKey(), headers, claimsOf("ana", changes)) }
	}
	by := func(alg jose.SignatureAlgorithm, id string, key func() any) func(*testing.T) string {
		return func(t *testing.T) string {
			return sign(t, alg, key(), map[string]any{"kid": id}, claimsOf("ana", nil))
		}
	}
	anyRSA := func() any { return rsaKey() }
	id := map[string]any{"kid": "rsa"}
	for name, token := range map[string]func(*testing.T) string{
		"as of RFC 9068":             rs(map[string]any{"kid": "rsa", "typ": "at+jwt"}, nil),
		"by its whole media type":    rs(map[string]any{"kid": "rsa", "typ": "application/AT+JWT"}, nil),
		"of no type":                 rs(id, nil),
		"of the type JWT":            rs(map[string]any{"kid": "rsa", "typ": "JWT"}, nil),
		"that does not name its key": rs(nil, nil),
		"for others too":             rs(id, map[string]any{"aud": []string{"https://other.example", audience}}),
		"with the scopes in a list":  rs(id, map[string]any{"scope": nil, "scp": []string{"tools"}}),
		"with more scopes":           rs(id, map[string]any{"scope": "a tools b"}),
		"that has expired just now":  rs(id, map[string]any{"exp": 946684800 - int64(clockSkew.Seconds())}),
		"of a clock that is ahead":   rs(id, map[string]any{"nbf": 946684800 + int64(clockSkew.Seconds()), "iat": 946684800 + int64(clockSkew.Seconds())}),
		"by RS384":                   by(jose.RS384, "rsa", anyRSA),
		"by RS512":                   by(jose.RS512, "rsa", anyRSA),
		"by PS256":                   by(jose.PS256, "rsa", anyRSA),
		"by PS384":                   by(jose.PS384, "rsa", anyRSA),
		"by PS512":                   by(jose.PS512, "rsa", anyRSA),
		"by ES256":                   by(jose.ES256, "p256", func() any { return p256Key() }),
		"by ES384":                   by(jose.ES384, "p384", func() any { return p384Key() }),
		"by EdDSA":                   by(jose.EdDSA, "ed25519", func() any { return ed25519Key() }),
		"whose other claims are odd": rs(id, map[string]any{"scp": 5, "Sub": "bo", "AUD": "x", "roles": map[string]any{"a": 1}}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust("tools")}, "echo")
				f.ask("POST", "/v1/runs", `{"tool":"echo"}`, "Authorization", "Bearer "+token(t))
				resp, text := exchange(t, f.dial("unix"), newRequest(t, "GET", "/v1/runs", "", wire.SessionHeader, "ana/default"))
				require.Equal(t, 200, resp.StatusCode)
				require.Contains(t, text, `"session":"ana/default"`)
			})
		})
	}
}

// unsigned makes a token by hand, with a header that the library does not make.
func unsigned(header string, claims any) string {
	payload, _ := json.Marshal(claims)
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
}

// byPublicKey signs with the issuer's public key as if it were a secret.
func byPublicKey(t *testing.T) string {
	der, err := x509.MarshalPKIXPublicKey(&rsaKey().PublicKey)
	require.NoError(t, err)
	text := unsigned(`{"alg":"HS256","kid":"rsa"}`, claimsOf("ana", nil))
	mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// badTokens lists tokens that are refused, each for the one thing that is wrong with it.
var badTokens = map[string]func(t *testing.T) string{
	"garbage":               func(*testing.T) string { return "garbage" },
	"three empty parts":     func(*testing.T) string { return ".." },
	"dots":                  func(*testing.T) string { return strings.Repeat(".", 9000) },
	"as JSON":               func(t *testing.T) string { return `{"payload":"e30","signatures":[]}` },
	"too long":              func(t *testing.T) string { return strings.Repeat("a", maxToken+1) },
	"without a signature":   func(t *testing.T) string { return unsigned(`{"alg":"none"}`, claimsOf("ana", nil)) + "." },
	"of none by other name": func(t *testing.T) string { return unsigned(`{"alg":"nOnE"}`, claimsOf("ana", nil)) + "." },
	"cut off":               func(t *testing.T) string { token := tokenOf(t, "ana"); return token[:len(token)-4] },
	"with other claims": func(t *testing.T) string {
		parts := strings.Split(tokenOf(t, "ana"), ".")
		return parts[0] + "." + strings.Split(tokenOf(t, "bo"), ".")[1] + "." + parts[2]
	},
	"by the public key as a secret": byPublicKey,
	"by a secret":                   signed(jose.HS256, []byte("0123456789abcdef0123456789abcdef"), nil, nil),
	"by ES512, which is not taken": func(t *testing.T) string {
		return unsigned(`{"alg":"ES512","kid":"p256"}`, claimsOf("ana", nil)) + ".AAAA"
	},
	"by another key": func(t *testing.T) string { return signed(jose.RS256, otherRSA(), map[string]any{"kid": "rsa"}, nil)(t) },
	"by a key of its own": func(t *testing.T) string {
		return signed(jose.RS256, otherRSA(), map[string]any{"kid": "rsa", "jwk": jose.JSONWebKey{Key: &otherRSA().PublicKey}}, nil)(t)
	},
	"by an unknown key": func(t *testing.T) string { return signed(jose.RS256, rsaKey(), map[string]any{"kid": "other"}, nil)(t) },
	"with a header to obey": func(t *testing.T) string {
		return signed(jose.RS256, rsaKey(), map[string]any{"kid": "rsa", "crit": []string{"exp"}, "exp": 1}, nil)(t)
	},
	"of another issuer":         changed("iss", "https://other.example"),
	"of an issuer much like it": changed("iss", issuerURL+"/"),
	"of no issuer":              changed("iss", nil),
	"for another":               changed("aud", "https://tools.example/mcp/"),
	"for others":                changed("aud", []string{"https://tools.example", "client"}),
	"for nobody":                changed("aud", nil),
	"for an odd audience":       changed("aud", map[string]any{"a": audience}),
	"of nobody":                 changed("sub", nil),
	"of an empty subject":       changed("sub", ""),
	"of a subject by number":    changed("sub", 5),
	"without an end":            changed("exp", nil),
	"with an odd end":           changed("exp", "tomorrow"),
	"expired": func(t *testing.T) string {
		return changed("exp", time.Now().Add(-clockSkew-time.Second).Unix())(t)
	},
	"not valid yet": func(t *testing.T) string {
		return changed("nbf", time.Now().Add(clockSkew+time.Second).Unix())(t)
	},
	"issued in the future": func(t *testing.T) string {
		return changed("iat", time.Now().Add(clockSkew+time.Second).Unix())(t)
	},
	"bound to a key":           changed("cnf", map[string]any{"jkt": "x"}),
	"an ID token":              changed("nonce", "x"),
	"an ID token, by its hash": changed("at_hash", "x"),
	"an event":                 changed("events", map[string]any{}),
	"a logout": func(t *testing.T) string {
		return signed(jose.RS256, rsaKey(), map[string]any{"kid": "rsa", "typ": "logout+jwt"}, nil)(t)
	},
	"of an odd type": func(t *testing.T) string {
		return signed(jose.RS256, rsaKey(), map[string]any{"kid": "rsa", "typ": 5}, nil)(t)
	},
	"claims that are a list": func(t *testing.T) string {
		return sign(t, jose.RS256, rsaKey(), map[string]any{"kid": "rsa"}, []string{"sub"})
	},
}

func signed(alg jose.SignatureAlgorithm, key any, headers, changes map[string]any) func(t *testing.T) string {
	return func(t *testing.T) string { return sign(t, alg, key, headers, claimsOf("ana", changes)) }
}

func changed(claim string, value any) func(t *testing.T) string {
	return func(t *testing.T) string {
		return signed(jose.RS256, rsaKey(), map[string]any{"kid": "rsa"}, map[string]any{claim: value})(t)
	}
}

// Errors about a token are reported in general words, and the token is in no
// answer and no line of the log.
func TestTokensThatAreRefused(t *testing.T) {
	for name, make := range badTokens {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				i := startIssuer(t)
				f := serve(t, httpapi.Config{OAuth: i.trust(), Token: "s3cret"}, "echo")
				token := make(t)
				for _, path := range []string{"/v1/runs", "/mcp", "/v1/stats", "/nowhere"} {
					resp, text := f.do("GET", path, "", "Authorization", "Bearer "+token)
					require.Equal(t, http.StatusUnauthorized, resp.StatusCode, text)
					require.Contains(t, text, `"code":"unauthorized"`)
					challenge := resp.Header.Get("WWW-Authenticate")
					require.Contains(t, challenge, `resource_metadata="https://tools.example/.well-known/oauth-protected-resource/mcp"`)
					require.Contains(t, challenge, `error="invalid_token"`)
					if len(token) > 8 {
						require.NotContains(t, text+challenge, token)
					}
				}
				if len(token) > 8 {
					require.NotContains(t, f.logs.String(), token)
				}
				require.LessOrEqual(t, i.fetches(), 1)
				f.ask("GET", "/v1/runs", "", "Authorization", "Bearer "+tokenOf(t, "ana")) // but for that it would do
			})
		})
	}
}

// Two headers are ambiguous: a proxy may have checked the other one. A token in
// the URL does not count.
func TestOneTokenInTheHeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust(), Token: "s3cret"}, "echo")
		for _, second := range []string{"Bearer s3cret", "Basic eDp5", ""} {
			req := newRequest(t, "GET", "/v1/runs", "", "Authorization", "Bearer "+tokenOf(t, "ana"))
			req.Header.Add("Authorization", second)
			resp, text := exchange(t, f.dial("tcp"), req)
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, text)
			require.Contains(t, resp.Header.Get("WWW-Authenticate"), `error="invalid_request"`)
		}
		p := f.refused("GET", "/v1/runs?access_token="+tokenOf(t, "ana"), "")
		require.Equal(t, wire.CodeUnauthorized, p.Code)
		require.Equal(t, wire.CodeUnauthorized, f.refused("GET", "/v1/runs", "", "Authorization", "Basic "+tokenOf(t, "ana")).Code)
	})
}

// All scopes are needed, and the answer to a token without all of them names them.
func TestScopes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust("tools", "runs:all")}, "echo")
		for scope, status := range map[any]int{"tools runs:all": 200, "runs:all x tools": 200, "tools": 403, "toolsruns:all": 403, "": 403, nil: 403, 5: 403} {
			resp, text := f.do("GET", "/v1/runs", "", "Authorization", "Bearer "+changed("scope", scope)(t))
			require.Equal(t, status, resp.StatusCode, scope)
			if status == 403 {
				require.Contains(t, text, `"code":"insufficient_scope"`)
				require.Contains(t, resp.Header.Get("WWW-Authenticate"), `scope="tools runs:all", error="insufficient_scope"`)
			}
		}
	})
}

// A new key is accepted as soon as a token names it, and a withdrawn key soon stops being
// accepted.
func TestRotation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		i := startIssuer(t)
		f := serve(t, httpapi.Config{OAuth: i.trust()}, "echo")
		status := func(key any, id string) int {
			token := sign(t, jose.RS256, key, map[string]any{"kid": id}, claimsOf("ana", nil))
			resp, _ := f.do("GET", "/v1/runs", "", "Authorization", "Bearer "+token)
			return resp.StatusCode
		}
		require.Equal(t, 200, status(rsaKey(), "rsa"))
		time.Sleep(keysPause)
		i.withdraw()
		i.publish("new", &otherRSA().PublicKey)
		require.Equal(t, 200, status(rsaKey(), "rsa"), "it is not asked for each token")
		require.Equal(t, 1, i.fetches())
		require.Equal(t, 200, status(otherRSA(), "new"))
		require.Equal(t, 401, status(rsaKey(), "rsa"))
		require.Equal(t, 2, i.fetches())

		i.withdraw()
		i.publish("newer", &rsaKey().PublicKey)
		time.Sleep(keysFresh + time.Second)
		require.Equal(t, 200, status(otherRSA(), "new"), "the first request does not wait for the keys")
		synctest.Wait()
		require.Equal(t, 401, status(otherRSA(), "new"))
		require.Equal(t, 3, i.fetches())
	})
}

// Whatever clients send, the issuer is asked only once in a while.
func TestUnknownKeysDoNotHammer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		i := startIssuer(t)
		f := serve(t, httpapi.Config{OAuth: i.trust()}, "echo")
		const during = time.Minute
		for n := range 300 {
			token := sign(t, jose.EdDSA, ed25519Key(), map[string]any{"kid": strings.Repeat("k", n)}, claimsOf("ana", nil))
			resp, _ := f.do("GET", "/v1/runs", "", "Authorization", "Bearer "+token)
			want := 401
			if n == 0 { // it names no key
				want = 200
			}
			require.Equal(t, want, resp.StatusCode)
			time.Sleep(during / 300)
		}
		require.LessOrEqual(t, i.fetches(), 1+int(during/keysPause))
		require.Greater(t, i.fetches(), 1)
	})
}

// An issuer that does not answer properly delays no one whose token can be checked
// without it. The others are told that their token cannot be checked. The keys are not
// looked for elsewhere.
func TestIssuerFails(t *testing.T) {
	for name, fault := range map[string]http.HandlerFunc{
		"it hangs":         func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"it fails":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"it knows nothing": http.NotFound,
		"it redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost:9001/keys", http.StatusFound)
		},
		"it says nonsense": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"it says too much": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"` + issuerURL + `","jwks_uri":"` + issuerURL + `/keys","keys":"` + strings.Repeat("a", 1<<20)))
		},
		"it is another": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"http://localhost:9000","jwks_uri":"` + issuerURL + `/keys"}`))
		},
		"it has a long name": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"` + strings.Repeat("a", 1<<18) + `"}`))
		},
		"its keys are far away": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"` + issuerURL + `","jwks_uri":"http://` + strings.Repeat("a", 1<<18) + `"}`))
		},
		"its keys are anywhere": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"` + issuerURL + `","jwks_uri":"http://169.254.169.254/keys"}`))
		},
		"its keys are of no use": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"` + issuerURL + `","jwks_uri":"` + issuerURL + `/keys","keys":[{"kty":"oct","k":"AAAA"},{"kty":"RSA","n":"AQAB","e":"AQAB"},5]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				i := startIssuer(t)
				i.breaks(fault)
				f := serve(t, httpapi.Config{OAuth: i.trust(), Token: "s3cret"}, "echo")
				began := time.Now()
				uncertain := func() {
					t.Helper()
					resp, text := f.do("GET", "/v1/runs", "", as(t, "ana")...)
					require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
					require.Contains(t, text, `"code":"issuer_unavailable"`)
					require.Equal(t, "10", resp.Header.Get("Retry-After"))
				}
				uncertain()
				require.LessOrEqual(t, time.Since(began), keysTimeout)
				began = time.Now()
				uncertain() // at once
				f.ask("GET", "/v1/stats", "", "Authorization", "Bearer s3cret")
				f.ask("GET", "/healthz", "")
				require.Zero(t, time.Since(began))
				require.Contains(t, f.logs.String(), "fetching the keys of the OAuth issuer failed")
				require.Less(t, len(f.logs.String()), 16<<10, "the issuer does not write the log")

				time.Sleep(keysPause)
				i.breaks(nil)
				f.ask("GET", "/v1/runs", "", as(t, "ana")...)
				i.breaks(fault)
				for range 5 { // what is there is used while it may be
					time.Sleep(keysFresh)
					began = time.Now()
					f.ask("GET", "/v1/runs", "", as(t, "ana")...)
					require.Zero(t, time.Since(began))
				}
				time.Sleep(keysLast)
				uncertain()
			})
		})
	}
}

// The keys are where the metadata says, in either of its forms, or where the
// operator says.
func TestDiscovery(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*issuer, *identity.OAuth)
		asked   string
	}{
		"OpenID Connect": {func(*issuer, *identity.OAuth) {}, "/realm/.well-known/openid-configuration"},
		"RFC 8414": {func(i *issuer, _ *identity.OAuth) {
			i.mux = http.NewServeMux()
			i.describe("/.well-known/oauth-authorization-server/realm", issuerURL, issuerURL+"/keys")
			i.mux.HandleFunc("/realm/keys", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(i.keys) })
		}, "/.well-known/oauth-authorization-server/realm"},
		"configured": {func(_ *issuer, o *identity.OAuth) { o.JWKS = issuerURL + "/keys" }, "/realm/keys"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				i := startIssuer(t)
				o := i.trust()
				test.prepare(i, o)
				f := serve(t, httpapi.Config{OAuth: o}, "echo")
				f.ask("GET", "/v1/runs", "", as(t, "ana")...)
				require.Equal(t, 1, i.asked[test.asked])
				require.Equal(t, name == "configured", len(i.asked) == 1)
			})
		})
	}
}

// The shutdown of a server does not wait for an issuer that hangs.
func TestShutdownEndsFetch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		i := startIssuer(t)
		i.breaks(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		f := serve(t, httpapi.Config{OAuth: i.trust()}, "echo")
		conn := f.dial("tcp")
		answer := make(chan string)
		go func() {
			_, text := exchange(t, conn, newRequest(t, "GET", "/v1/runs", "", as(t, "ana")...))
			answer <- text
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, f.Shutdown(t.Context()))
		require.Less(t, time.Since(began), keysTimeout)
		require.Contains(t, <-answer, `"code":"closing"`)
	})
}

// A configuration that cannot be right is refused when it is read, and lets nobody in.
func TestOAuthCheck(t *testing.T) {
	good := identity.OAuth{Issuer: "https://login.example", Audience: audience, JWKS: "https://login.example/keys?x=1", Scopes: []string{"a:b", "https://x/y"}}
	require.NoError(t, good.Check())
	require.NoError(t, identity.OAuth{Issuer: "http://127.0.0.1:9000/realm", Audience: "http://[::1]:7070/mcp"}.Check())
	for want, o := range map[string]identity.OAuth{
		"issuer: required":                 {Audience: audience},
		"audience: required":               {Issuer: good.Issuer},
		"has to be https":                  {Issuer: "http://login.example", Audience: audience},
		"audience: \"http://10.0.0.1/x\"":  {Issuer: good.Issuer, Audience: "http://10.0.0.1/x"},
		"issuer: \"login.example\" is not": {Issuer: "login.example", Audience: audience},
		"must not have a query":            {Issuer: "https://login.example?x", Audience: audience},
		"must not have a fragment":         {Issuer: good.Issuer, Audience: audience + "#"},
		"must not have a user":             {Issuer: "https://a:b@login.example", Audience: audience},
		"jwks: \"http://login":             {Issuer: good.Issuer, Audience: audience, JWKS: "http://login.example/keys"},
		"jwks: \"file:///keys\"":           {Issuer: good.Issuer, Audience: audience, JWKS: "file:///keys"},
		"audience: \"https://t/\\\"":       {Issuer: good.Issuer, Audience: `https://t/"`},
		"scopes: \"a b\"":                  {Issuer: good.Issuer, Audience: audience, Scopes: []string{"a b"}},
		"scopes: \"\"":                     {Issuer: good.Issuer, Audience: audience, Scopes: []string{""}},
	} {
		err := o.Check()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "a:b@")
	}
	bubble(t, func(t *testing.T) {
		o := startIssuer(t).trust("a b")
		f := serve(t, httpapi.Config{OAuth: o}, "echo")
		require.Equal(t, wire.CodeIssuer, f.refused("GET", "/v1/runs", "", as(t, "ana")...).Code)
	})
}
