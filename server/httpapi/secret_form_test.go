package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// Links for secrets need no login, because users have none in their browsers. Nothing else
// is open because of them, and web pages of other origins reach them as little.
func TestSecretFormNeedsNoLogin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		form := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
		f := serve(t, httpapi.Config{Token: "correct-token-of-the-operator", OAuth: startIssuer(t).trust(), SecretForm: form, Page: form}, "echo")
		for path, want := range map[string]int{
			"/secret/ABC": http.StatusTeapot,
			"/":           http.StatusUnauthorized, "/ui/secrets": http.StatusUnauthorized, "/v1/secrets": http.StatusUnauthorized, "/mcp": http.StatusUnauthorized,
			"/secret": http.StatusUnauthorized, "/secrets/": http.StatusUnauthorized, "/Secret/ABC": http.StatusUnauthorized,
			"/secret/": http.StatusNotFound, "/secret/../ui/secrets": http.StatusNotFound, "/secret/..%2fui/secrets": http.StatusNotFound, "/secret//ui/": http.StatusNotFound,
		} {
			resp, _ := f.do("GET", path, "")
			require.Equal(t, want, resp.StatusCode, path)
		}
		resp, _ := f.do("POST", "/secret/ABC", "value=x", "Origin", "https://evil.example")
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		resp, _ = f.do("GET", "/secret/ABC", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors")
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		resp, _ = f.do("GET", "/secret/ABC", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
		require.Equal(t, http.StatusTeapot, resp.StatusCode, "a link in a chat may be followed")
	})
}

// TestSecretLinksAreNotLogged: whoever has a link can set its secret, so the log has no token.
func TestSecretLinksAreNotLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		form := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				panic("broken")
			}
		})
		f := serve(t, httpapi.Config{SecretForm: form}, "echo")
		for _, path := range []string{"/secret/TOKEN", "//secret/TOKEN", "/tools/secret/TOKEN", "/secret/a/TOKEN", "/secret/%54OKEN"} {
			f.do("GET", path, "")
			f.do("POST", path, "value=x")
		}
		require.Contains(t, f.logs.String(), `"msg":"request","method":"GET","path":"/secret/…"`)
		require.Contains(t, f.logs.String(), `"msg":"request panicked","method":"POST","path":"/secret/…"`)
		require.NotContains(t, f.logs.String(), "TOKEN")
	})
}
