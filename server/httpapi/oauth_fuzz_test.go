package httpapi

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// FuzzAuthorization: whatever the header says, it names the operator only with
// the token, and a user only with what the issuer signed.
func FuzzAuthorization(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	claims := `{"iss":"https://login.example","aud":"https://tools.example/mcp","sub":"ana","exp":99999999999}`
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	require.NoError(f, err)
	jws, err := signer.Sign([]byte(claims))
	require.NoError(f, err)
	good, err := jws.CompactSerialize()
	require.NoError(f, err)
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	for _, seed := range []string{
		"", "Bearer", "Bearer ", "Bearer s3cret", "bearer  s3cret ", "Basic eDpzM2NyZXQ=", "Bearer " + good, "Bearer\t" + good, good,
		"Bearer " + encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", "Bearer " + parts[0] + "." + parts[1] + ".",
		"Bearer " + encode([]byte(`{"alg":"HS256","kid":"k"}`)) + "." + parts[1] + "." + parts[2],
		"Bearer " + parts[0] + "." + encode([]byte(strings.Replace(claims, "ana", "bo", 1))) + "." + parts[2],
		"Bearer " + encode([]byte(`{"alg":"EdDSA","kid":"k","crit":["b64"],"b64":false}`)) + "." + parts[1] + "." + parts[2],
		"Bearer " + encode([]byte(`{"alg":"EdDSA","kid":"other"}`)) + "." + parts[1] + "." + parts[2], "Bearer " + strings.Repeat(".", 99),
	} {
		f.Add(seed, "/v1/runs")
		f.Add(seed, "/ui/")
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "k", Key: key.Public()}}})
	require.NoError(f, err)
	a := New(nil, Config{Token: "s3cret", OAuth: &identity.OAuth{
		Issuer: "https://login.example", Audience: "https://tools.example/mcp", JWKS: "https://login.example/keys", Transport: published(keys),
	}})
	f.Fuzz(func(t *testing.T, header, path string) {
		r := httptest.NewRequest(http.MethodGet, "http://tools.example/", nil)
		r.URL.Path = path
		r.Header["Authorization"] = []string{header}
		caller, err := a.guard(r)
		if err != nil {
			p := problemOf(err)
			require.Contains(t, []wire.Code{wire.CodeUnauthorized, wire.CodeForbidden, wire.CodeIssuer}, p.Code)
			require.Equal(t, p.Code == wire.CodeUnauthorized, p.challenge != "")
			require.NotContains(t, p.challenge, "\n")
			_, err := json.Marshal(p)
			require.NoError(t, err)
			return
		}
		_, credentials, _ := strings.Cut(header, " ")
		switch {
		case caller.User == identity.Nobody.User:
			require.True(t, isMetadata(path) || path == pathHealth || path == pathReady)
		case caller.Operator():
			password, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(credentials))
			require.True(t, strings.TrimSpace(credentials) == "s3cret" || isPage(path) && strings.HasSuffix(string(password), ":s3cret"))
		default:
			require.Equal(t, "ana", caller.User)
			require.False(t, isPage(path))
			signed, err := base64.RawURLEncoding.DecodeString(strings.Split(strings.TrimSpace(credentials), ".")[1])
			require.NoError(t, err)
			require.Equal(t, claims, string(signed))
		}
	})
}

// published is the body that an issuer answers each request with.
type published []byte

func (p published) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(p)), Request: r}, nil
}
