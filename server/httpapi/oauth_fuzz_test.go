package httpapi

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
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
	a := New(nil, Config{Token: "s3cret", OAuth: &OAuth{Issuer: "https://login.example", Audience: "https://tools.example/mcp"}})
	a.oauth.keys.client.Transport = nowhere{}
	f.Fuzz(func(t *testing.T, header, path string) {
		keys := a.oauth.keys
		keys.mu.Lock()
		keys.keys, keys.got, keys.err = []jose.JSONWebKey{{KeyID: "k", Key: key.Public()}}, time.Now(), nil
		keys.mu.Unlock()
		r := httptest.NewRequest(http.MethodGet, "http://tools.example/", nil)
		r.URL.Path = path
		r.Header["Authorization"] = []string{header}
		caller, err := a.guard(r)
		if err != nil {
			p := problem(err)
			require.Contains(t, []Code{CodeUnauthorized, CodeForbidden, CodeIssuer}, p.Code)
			require.Equal(t, p.Code == CodeUnauthorized, p.challenge != "")
			require.NotContains(t, p.challenge, "\n")
			_, err := json.Marshal(p)
			require.NoError(t, err)
			return
		}
		_, credentials, _ := strings.Cut(header, " ")
		switch {
		case caller == nobody:
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

// nowhere is a network on which nobody answers.
type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
