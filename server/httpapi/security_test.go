package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// Who may send requests: programs on this machine, or with the token. Web pages of
// another origin never may, whatever name they use for the server.
func TestGuard(t *testing.T) {
	for name, test := range map[string]struct {
		token   string
		network string // "": tcp
		headers []string
		want    wire.Code // "": let in
	}{
		"a program":                     {},
		"by address":                    {headers: []string{"Host", "127.0.0.1:7070"}},
		"by another loopback address":   {headers: []string{"Host", "127.8.8.8"}},
		"by the address of IPv6":        {headers: []string{"Host", "[::1]:7070"}},
		"by a name with a dot":          {headers: []string{"Host", "localhost.:7070"}},
		"by another name":               {headers: []string{"Host", "attacker.example:7070"}, want: wire.CodeForbidden},
		"by a name that begins so":      {headers: []string{"Host", "localhost.attacker.example"}, want: wire.CodeForbidden},
		"by an address of the network":  {headers: []string{"Host", "192.168.0.7:7070"}, want: wire.CodeForbidden},
		"over the socket, by any name":  {network: "unix", headers: []string{"Host", "whatever"}},
		"a page of this server":         {headers: []string{"Host", "localhost:7070", "Origin", "http://localhost:7070", "Sec-Fetch-Site", "same-origin"}},
		"a page of another origin":      {headers: []string{"Origin", "https://attacker.example", "Sec-Fetch-Site", "cross-site"}, want: wire.CodeForbidden},
		"a page of another port":        {headers: []string{"Host", "localhost:7070", "Origin", "http://localhost:3000"}, want: wire.CodeForbidden},
		"a page of no origin":           {headers: []string{"Origin", "null"}, want: wire.CodeForbidden},
		"a page over the socket":        {network: "unix", headers: []string{"Origin", "https://attacker.example"}, want: wire.CodeForbidden},
		"an old browser":                {headers: []string{"Origin", "https://attacker.example"}, want: wire.CodeForbidden},
		"without the token":             {token: "s3cret", want: wire.CodeUnauthorized},
		"with another token":            {token: "s3cret", headers: []string{"Authorization", "Bearer s3cre"}, want: wire.CodeUnauthorized},
		"with the token, but no bearer": {token: "s3cret", headers: []string{"Authorization", "Basic s3cret"}, want: wire.CodeUnauthorized},
		"with the token":                {token: "s3cret", headers: []string{"Authorization", "bearer s3cret"}},
		"with the token, by any name":   {token: "s3cret", headers: []string{"Authorization", "Bearer s3cret", "Host", "tools.example"}},
		"with the token, from a page":   {token: "s3cret", headers: []string{"Authorization", "Bearer s3cret", "Origin", "https://attacker.example"}, want: wire.CodeForbidden},
		"over the socket, no token":     {token: "s3cret", network: "unix"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{Token: test.token}, "echo")
				network := test.network
				if network == "" {
					network = "tcp"
				}
				for _, method := range []string{"GET", "POST"} {
					path, body := "/v1/stats", ""
					if method == "POST" {
						path, body = "/v1/calls", `{"tool":"echo"}`
					}
					resp, text := exchange(t, f.dial(network), newRequest(t, method, path, body, test.headers...))
					if test.want == "" {
						require.Equal(t, 200, resp.StatusCode, text)
						continue
					}
					require.Contains(t, text, `"code":"`+string(test.want)+`"`)
				}
			})
		})
	}
}

// A page of another origin gets nothing by a GET either: not as an image, a
// script or a frame, which a browser asks for without saying the origin, and
// whose time and outcome the page sees. A link that is followed is let through.
func TestGetsOfPages(t *testing.T) {
	for name, test := range map[string]struct {
		site, mode, dest string
		refused          bool
	}{
		"an image":                  {"cross-site", "no-cors", "image", true},
		"a script of a subdomain":   {"same-site", "no-cors", "script", true},
		"a frame":                   {"cross-site", "navigate", "iframe", true},
		"a fetch without an origin": {"cross-site", "no-cors", "empty", true},
		"a link":                    {"cross-site", "navigate", "document", false},
		"an address that is typed":  {"none", "navigate", "document", false},
		"the page's own script":     {"same-origin", "no-cors", "script", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "echo")
				resp, text := f.do("GET", "/v1/runs", "", "Sec-Fetch-Site", test.site, "Sec-Fetch-Mode", test.mode, "Sec-Fetch-Dest", test.dest)
				require.Equal(t, test.refused, resp.StatusCode == http.StatusForbidden, text)
			})
		})
	}
}

// Where there is a login every endpoint asks for it, those that begin, show,
// wait for and stop runs with the others: only health does without, and what
// tells how to log in.
func TestEveryRouteIsGuarded(t *testing.T) {
	for name, login := range map[string]func(t *testing.T) httpapi.Config{
		"a token": func(*testing.T) httpapi.Config { return httpapi.Config{Token: "s3cret"} },
		"OAuth":   func(t *testing.T) httpapi.Config { return httpapi.Config{OAuth: startIssuer(t).trust()} },
		"a token and OAuth": func(t *testing.T) httpapi.Config {
			return httpapi.Config{Token: "s3cret", OAuth: startIssuer(t).trust()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := login(t)
				f := serve(t, cfg, "echo")
				id := strings.Repeat("a", 26)
				path := strings.NewReplacer("{tool}", "echo", "{run}", "bg_"+id, "{schedule}", "sc_"+id, "{name}", "output.log")
				guarded := 0
				for _, r := range httpapi.Routes() {
					switch metadata := strings.HasPrefix(r.Path, "/.well-known/oauth-protected-resource"); {
					case metadata && cfg.OAuth == nil:
						require.Equal(t, wire.CodeNotFound, f.refused(r.Method, r.Path, "").Code)
						continue
					case metadata, r.Path == "/healthz", r.Path == "/readyz":
						f.ask(r.Method, r.Path, "")
						continue
					}
					conn := f.dial("tcp")
					require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute))) // for a stream that is not refused
					_, text := exchange(t, conn, newRequest(t, r.Method, path.Replace(r.Path), ""))
					require.Contains(t, text, `"code":"`+string(wire.CodeUnauthorized)+`"`, "%s %s", r.Method, r.Path)
					guarded++
				}
				require.Greater(t, guarded, 10)
			})
		})
	}
}

// A form of a web page cannot call anything, even where the browser says
// nothing of where it comes from.
func TestOnlyJSON(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=latin1", "json"} {
			p := f.refused("POST", "/v1/calls", `{"tool":"echo"}`, "Content-Type", media)
			require.Equal(t, wire.CodeMediaType, p.Code, media)
		}
		f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Content-Type", "application/json; charset=UTF-8")
	})
}

// Answers contain text from tools: no browser may take it for a page.
func TestAnswersAreNoPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		id := f.spawn("echo")
		for _, path := range []string{"/v1/tools", "/v1/runs/" + id + "/output", "/nowhere"} {
			resp, _ := f.do("GET", path, "")
			require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"), path)
			require.Equal(t, "default-src 'none'; sandbox", resp.Header.Get("Content-Security-Policy"), path)
			require.Equal(t, "no-store", resp.Header.Get("Cache-Control"), path)
			require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"), path)
		}
	})
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:7070": true, "localhost:0": true, "[::1]:7070": true, "127.1.2.3:1": true,
		"0.0.0.0:7070": false, ":7070": false, "[::]:7070": false, "192.168.0.7:7070": false, "example.com:7070": false, "7070": false, "": false,
	} {
		require.Equal(t, want, identity.Loopback(address), address)
	}
}

// The token appears nowhere but in the request.
func TestTokenIsNotTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{Token: "hunter2"}, "echo")
		f.ask("GET", "/v1/stats", "", "Authorization", "Bearer hunter2")
		f.refused("GET", "/v1/stats", "", "Authorization", "Bearer hunter2hunter2")
		require.NotContains(t, f.logs.String(), "hunter2")
	})
}

// Metrics are for the operator and for a scraper, whose token opens nothing else.
func TestMetricsToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("toolhost_tools 1\n")) })
		f := serve(t, httpapi.Config{Token: "s3cret", OAuth: startIssuer(t).trust(), Metrics: page, MetricsToken: "scrape"}, "echo")
		for name, test := range map[string]struct {
			path    string
			headers []string
			want    wire.Code // "": answered
		}{
			"without a token":              {want: wire.CodeUnauthorized},
			"with another token":           {headers: []string{"Authorization", "Bearer scrap"}, want: wire.CodeUnauthorized},
			"with an empty token":          {headers: []string{"Authorization", "Bearer "}, want: wire.CodeUnauthorized},
			"with the token for it":        {headers: []string{"Authorization", "bearer scrape"}},
			"with the operator's token":    {headers: []string{"Authorization", "Bearer s3cret"}},
			"as a user":                    {headers: as(t, "ana"), want: wire.CodeForbidden},
			"of a page of another origin":  {headers: []string{"Authorization", "Bearer scrape", "Origin", "https://attacker.example"}, want: wire.CodeForbidden},
			"another path":                 {path: "/v1/stats", headers: []string{"Authorization", "Bearer scrape"}, want: wire.CodeUnauthorized},
			"another path that ends in it": {path: "/v1/tools/../../metrics", headers: []string{"Authorization", "Bearer scrape"}, want: wire.CodeUnauthorized},
			"the page":                     {path: "/", headers: []string{"Authorization", "Bearer scrape"}, want: wire.CodeUnauthorized},
			"MCP":                          {path: "/mcp", headers: []string{"Authorization", "Bearer scrape"}, want: wire.CodeUnauthorized},
		} {
			path := test.path
			if path == "" {
				path = "/metrics"
			}
			resp, text := exchange(t, f.dial("tcp"), newRequest(t, "GET", path, "", test.headers...))
			if test.want == "" {
				require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", name, text)
				require.Contains(t, text, "toolhost_tools", name)
			} else {
				require.Contains(t, text, `"code":"`+string(test.want)+`"`, name)
			}
		}

		resp, text := f.overSocket("GET", "/metrics", "")
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
	})
}

// Without a token for it, an empty one is nobody's; without metrics there is no such path.
func TestNoMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{Token: "s3cret"}, "echo")
		_, text := exchange(t, f.dial("tcp"), newRequest(t, "GET", "/metrics", "", "Authorization", "Bearer "))
		require.Contains(t, text, `"code":"unauthorized"`)
		resp, _ := f.overSocket("GET", "/metrics", "")
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
	})
}
