package egress

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// hostileCase is one thing that a plugin, a server or a resolver tries. In URLs, {api},
// {evil}, {raw}, {plain} and {inner} stand for servers.
type hostileCase struct {
	name     string
	req      Request
	rules    []Rule // default: api.example.test and deep.evil.test, GET and POST
	secret   Place  // of the rule for api.example.test
	value    string // default plainSecret
	readonly bool
	limits   limits
	before   *Request // another request of the same call
	unseen   bool     // no server may get a request
}

func get(url string, redirects int) Request { return Request{URL: url, Redirects: redirects} }

func withHeader(name string, values ...string) Request {
	return Request{URL: "{api}/echo?as=all", Header: http.Header{name: values}}
}

// moving is a request with a header that names another URL.
func moving(to string) Request {
	return Request{URL: "{api}/v1/x", Header: http.Header{"Destination": {to}}}
}

func below() []Rule { return []Rule{{URL: "{api}/v1/*"}} }

func to(location string) string { return "{api}/redirect?to=" + url.QueryEscape(location) }

var bearer = Place{Bearer: true}

// hostileCases are played in their order.
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
		{name: "path override", req: withHeader("X-Original-URL", "/admin"), rules: []Rule{{URL: "{api}/echo"}}, unseen: true},
		{name: "path override, underscores", req: withHeader("x_rewrite_url", "/echo", "/admin?x"), rules: []Rule{{URL: "{api}/echo"}}, unseen: true},
		{name: "destination with a fragment", req: moving("https://api.example.test/v1/a#/../../admin"), rules: below(), unseen: true},
		{name: "destination with a list", req: moving("https://api.example.test/v1/x, /admin"), rules: below(), unseen: true},
		{name: "destination with a list without spaces", req: moving("https://api.example.test/v1/x,/admin"), rules: below(), unseen: true},
		{name: "destination with a space", req: moving("https://api.example.test/v1/a b"), rules: below(), unseen: true},
		{name: "destination with dots that stay within the rule", req: moving("https://api.example.test/v1/x/../y"), rules: below(), unseen: true},
		{name: "destination without a scheme", req: moving("//evil.test/x"), unseen: true},
		{name: "destination that is a path", req: moving("/v1/y"), rules: below(), unseen: true},
		{name: "destination with a default port", req: moving("https://api.example.test:443/echo"), rules: below(), unseen: true},
		{name: "destination on another host", req: moving("https://evil.test/v1/y"), rules: below(), unseen: true},
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
		{name: "Host", req: withHeader("Host", "evil.test")},
		{name: "Transfer-Encoding", req: withHeader("Transfer-Encoding", "chunked"), unseen: true},
		{name: "Transfer_Encoding", req: withHeader("transfer_encoding", "chunked"), unseen: true},
		{name: "Content-Length", req: withHeader("Content-Length", "5")},
		{name: "Connection", req: withHeader("Connection", "X-Api-Key")},
		{name: "Upgrade", req: withHeader("Upgrade", "h2c"), unseen: true},
		{name: "HTTP2-Settings", req: withHeader("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA"), unseen: true},
		{name: "Expect", req: withHeader("Expect", "100-continue"), unseen: true},
		{name: "TE", req: withHeader("TE", "chunked")},
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
		{name: "no response", req: get("{api}/slow-header", 0), limits: limits{timeout: 100 * time.Millisecond}},
		{name: "response that stops", req: get("{api}/slow-body", 0), limits: limits{timeout: 100 * time.Millisecond}},
		{name: "response that breaks off", req: get("{api}/cut", 0)},
		{name: "many response headers", req: get("{api}/many-fields", 0)},
		{name: "large response header", req: get("{api}/large-header", 0)},
		{name: "early hints", req: get("{api}/early-hints", 0)},
		{name: "flood of early hints", req: get("{api}/hint-flood", 0)},
		{name: "secret in a trailer", req: get("{api}/trailers", 0), secret: bearer},
		{name: "headers of a proxy", req: get("{api}/hop-headers", 0)},
		{name: "too many requests", req: get("{api}/ok", 0), before: &Request{URL: "{api}/ok"}, limits: limits{requests: 1}},
		{name: "too many bytes", req: Request{Method: "POST", URL: "{api}/ok", Body: make([]byte, 600)}, before: &Request{Method: "POST", URL: "{api}/ok", Body: make([]byte, 600)}, limits: limits{bytes: 1000}},

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
		{name: "redirect over the number of requests", req: get("{api}/loop", 20), limits: limits{requests: 3}},
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
		{name: "echo of what another call used", req: get("{evil}/echo?as=all&q="+plainSecret, 0), secret: bearer},
		{name: "a part of a response", req: withHeader("range", "bytes=0-10"), secret: bearer, unseen: true},
		{name: "a part, if it is the same", req: withHeader("If_Range", `"a"`), secret: bearer, unseen: true},
		{name: "a part of a response without a secret", req: withHeader("Range", "bytes=0-10")},
		{name: "a part that was not asked for", req: get("{api}/echo?as=part", 0), secret: bearer},
		{name: "a part that was not asked for, without a secret", req: get("{api}/echo?as=part", 0)},
		{name: "a part of a response, on a rule without a secret", req: Request{URL: "{evil}/echo", Header: http.Header{"Range": {"bytes=0-10"}}}, secret: bearer, unseen: true},
		{name: "a part that was not asked for, on a rule without a secret", req: get("{evil}/echo?as=part", 0), secret: bearer},
		{name: "echo of basic authentication", req: get("{api}/echo", 0), secret: Place{Basic: "user"}},
		{name: "echo of a header name", req: get("{api}/echo?as=header-name", 0), secret: bearer},
		{name: "secret in an error of the server", req: get("{api}/echo?as=status", 0), secret: bearer},
		{name: "secret in bytes that are not HTTP", req: get("{raw}/", 0), secret: bearer, rules: []Rule{{URL: "{raw}/*", Secret: "example"}}},
		{name: "secret of another rule in bytes that are not HTTP", req: get("{raw}/", 0), secret: bearer, rules: []Rule{{URL: "{raw}/*"}, {URL: "{api}/*", Secret: "example"}}},

		// Servers that are not what they should be.
		{name: "certificate of another host", req: get("{wrong}/ok", 0), rules: []Rule{{URL: "{wrong}/*"}}, unseen: true},
		{name: "expired certificate", req: get("{expired}/ok", 0), rules: []Rule{{URL: "{expired}/*"}}, unseen: true},
		{name: "certificate of a stranger", req: get("{stranger}/ok", 0), rules: []Rule{{URL: "{stranger}/*"}}, unseen: true},
		{name: "plain server for https", req: get("{mixed}/ok", 0), rules: []Rule{{URL: "{mixed}/*"}}, unseen: true},
		{name: "nobody listens", req: get("https://api.example.test:{closed}/ok", 0), rules: []Rule{{URL: "https://api.example.test:{closed}/*"}}, unseen: true},
		{name: "server that switches protocols", req: get("{switch}/ok", 0), rules: []Rule{{URL: "{switch}/*"}}},
		{name: "two lengths", req: get("{lengths}/ok", 0), rules: []Rule{{URL: "{lengths}/*"}}},
	}
	for _, as := range []string{"", "header", "cookie", "gzip", "base64", "base64-inner", "hex", "json", "json-slash", "html", "query", "lower-escapes"} {
		cases = append(cases, hostileCase{name: "echo as " + as, req: get("{api}/echo?as="+as, 0), secret: query, value: theSecret})
	}
	return cases
}
