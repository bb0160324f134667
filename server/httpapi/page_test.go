package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/webui"
	"github.com/toolhost/toolhost/server/wire"
)

// servePage serves the operators' page too.
func servePage(t testing.TB, cfg httpapi.Config, names ...string) *fixture {
	var page http.Handler
	cfg.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { page.ServeHTTP(w, r) })
	f := serve(t, cfg, names...)
	page = webui.New(f.service, webui.Config{})
	return f
}

// The page is behind the same checks as everything else, sets its own rules for browsers,
// and serves no other paths.
func TestPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := servePage(t, httpapi.Config{}, "echo")
		resp, body := f.do("GET", "/", "")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Contains(t, body, "<title>Overview · Toolhost</title>")
		require.NotContains(t, resp.Header.Get("Content-Security-Policy"), "sandbox")
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';")
		id := f.spawn("echo")
		resp, body = f.do("GET", "/ui/runs/"+id, "")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Contains(t, body, id)
		resp, _ = f.do("GET", "/ui/nothing", "")
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
		require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
		for _, path := range []string{"/ui", "/ui/"} {
			for _, method := range []string{"GET", "HEAD", "POST"} {
				resp, _ = f.do(method, path, "")
				require.Equal(t, http.StatusSeeOther, resp.StatusCode)
				require.Equal(t, "/", resp.Header.Get("Location"))
			}
		}
		for _, path := range []string{"/ui//", "/nothing", "/index.html", "/uix", "/v1/ui/", "/ui/../v1", "//"} {
			require.Equal(t, wire.CodeNotFound, f.refused("GET", path, "").Code, path)
		}
		require.Equal(t, wire.CodeNotFound, f.refused("POST", "/", "{}").Code)

		evil := []string{"Origin", "https://evil.example", "Content-Type", "application/x-www-form-urlencoded"}
		require.Equal(t, wire.CodeForbidden, f.refused("POST", "/ui/runs/"+id+"/stop", "force=true", evil...).Code)
		require.Equal(t, wire.CodeForbidden, f.refused("GET", "/", "", "Host", "evil.example").Code)
	})
	bubble(t, func(t *testing.T) {
		f := servePage(t, httpapi.Config{Token: "s3cret"}, "echo")
		for _, path := range []string{"/", "/ui", "/ui/", "/ui/runs", "/ui/static/x/page.js"} {
			resp, _ := f.do("GET", path, "")
			require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
			require.Contains(t, resp.Header.Get("WWW-Authenticate"), "Basic ", "a browser asks for the token")
		}
		resp, body := f.do("GET", "/", "", "Authorization", "Bearer s3cret")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NotContains(t, body, "s3cret")
	})
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		for _, path := range []string{"/", "/ui", "/ui/"} {
			require.Equal(t, wire.CodeNotFound, f.refused("GET", path, "").Code)
		}
	})
}
