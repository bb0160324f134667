package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// The page is behind the same guards as all else, says itself what browsers may
// do with it, and takes no other paths.
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

// A page that is followed is an answer that is open. It ends with a client that
// takes nothing, with one that leaves, and with the server.
func TestPageStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := servePage(t, httpapi.Config{}, "chatty")
		id := f.spawn("chatty")
		open := func() any { return f.ask("GET", "/v1/stats", "")["open_answers"] }
		follow := func(path string) io.ReadWriteCloser {
			return f.begin("GET " + path + " HTTP/1.1\nHost: localhost\nAccept: text/event-stream\n\n")
		}
		for _, path := range []string{"/", "/ui/runs/" + id} {
			conn := follow(path)
			synctest.Wait()
			require.EqualValues(t, 1, open(), path)
			time.Sleep(time.Minute) // it takes nothing
			require.EqualValues(t, 0, open(), path)
			require.NoError(t, conn.Close())

			conn = follow(path)
			synctest.Wait()
			require.NoError(t, conn.Close())
			time.Sleep(time.Second)
			require.EqualValues(t, 0, open(), path)
		}
		conn := follow("/")
		text := make(chan string)
		go func() { all, _ := io.ReadAll(conn); text <- string(all) }()
		time.Sleep(5 * time.Minute) // one that takes what it is sent stays
		require.EqualValues(t, 1, open())
		go func() { _ = f.Shutdown(t.Context()) }()
		all := <-text
		require.Contains(t, all, "event: hello\n")
		require.Greater(t, strings.Count(all, ": alive"), 5)
	})
}
