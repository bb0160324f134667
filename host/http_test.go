package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// webServer is a real HTTPS server of HTTP/1.1 or HTTP/2 on the loopback address, and a
// host that trusts it.
type webServer struct {
	*httptest.Server
	host *host.Host
	log  *bytes.Buffer
}

func newWebServer(t testing.TB, http2 bool, handler http.HandlerFunc) *webServer {
	t.Helper()
	s := &webServer{Server: httptest.NewUnstartedServer(handler), log: &bytes.Buffer{}}
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	s.host = hostWith(t, host.Config{CacheDir: plugintest.CacheDir(), Egress: host.Egress{CA: ca}, Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	return s
}

// hostOps is a plugin that makes one call of the host and answers with the response.
func hostOps(op, request string) guest {
	n, size := int64(len(op)), int64(len(request))
	return guest{data: op + request, invoke: answering(tell(capability(dataAt, n, dataAt+n, size)))}
}

// answering is code that answers with the response of its last call of the host.
func answering(c code) code {
	return seq(c, set(0, read(abi.FieldResponse, dataAt, 16<<10)), drop(seq(i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite))), i32(0))
}

// fetch makes one request in a sandbox.
func (s *webServer) fetch(t testing.TB, request string, req host.Call) outcome {
	t.Helper()
	if req.Plugin == "" {
		req.Plugin, req.Tool = "guest", "tool"
	}
	return do(t.Context(), s.host, compile(t, s.host, hostOps("http", strings.ReplaceAll(request, "SERVER", s.URL)).wasm()), req)
}

func granting(rules ...host.HTTPRule) host.Policy { return host.Policy{Grant: host.Grant{HTTP: rules}} }

func (s *webServer) rule(path string, methods ...string) host.HTTPRule {
	return host.HTTPRule{URL: s.URL + path, Methods: methods, Private: true}
}

func echoes(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Method", r.Method)
	fmt.Fprintf(w, "%s %s %s %s", r.Proto, r.URL, r.Header.Get("X-Own"), body)
}

func TestHTTP(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
		t.Run(proto, func(t *testing.T) {
			s := newWebServer(t, http2, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/binary" {
					_, _ = w.Write([]byte{0xff, 0})
					return
				}
				echoes(w, r)
			})
			var seen []host.Exchange
			call := host.Call{Session: "ana/default", Policy: granting(s.rule("/*", "*")), Observers: host.Observers{HTTP: func(x host.Exchange) { seen = append(seen, x) }}}

			var got struct {
				Status     int
				URL        string
				Headers    http.Header
				Body       string
				BodyBase64 []byte `json:"body_base64"`
			}
			o := s.fetch(t, `{"method":"PUT","url":"SERVER/a?b=<c>","headers":{"x-own":["1"]},"body":"sent"}`, call)
			require.NoError(t, o.err)
			require.NoError(t, json.Unmarshal(o.Value, &got), string(o.Value))
			require.Equal(t, http.StatusOK, got.Status)
			require.Equal(t, proto+" /a?b=%3Cc%3E 1 sent", strings.ReplaceAll(strings.ReplaceAll(got.Body, "<", "%3C"), ">", "%3E"))
			require.Equal(t, "PUT", got.Headers.Get("X-Method"))
			require.Equal(t, "PUT", seen[0].Method)
			require.Equal(t, "ana", seen[0].User)
			require.Equal(t, 200, seen[0].Status)

			o = s.fetch(t, `{"url":"SERVER/binary","timeout_ms":5000}`, call)
			require.NoError(t, json.Unmarshal(o.Value, &got))
			require.Equal(t, []byte{0xff, 0}, got.BodyBase64)
		})
	}
}

// TestHostileHTTP: what a plugin is refused, word for word.
func TestHostileHTTP(t *testing.T) {
	s := newWebServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		case "/large":
			_, _ = w.Write(bytes.Repeat([]byte("x"), 2<<10))
		default:
			echoes(w, r)
		}
	})
	all := granting(s.rule("/*", "*"))
	local := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	small := s.rule("/*")
	small.MaxBody = 1 << 10
	for name, c := range map[string]struct {
		request string
		policy  host.Policy
		traits  host.Traits
		want    string
	}{
		"nothing granted":    {`{"url":"https://example.com/a/b?q=1"}`, host.Policy{}, host.Traits{}, `denied: GET https://example.com/a/b is refused: no http rule of the plugin admits this URL; the operator can allow it below grants.guest with http: [{url: "https://example.com/a/*", methods: [GET]}]`},
		"another path":       {`{"url":"SERVER/b"}`, granting(s.rule("/a/*")), host.Traits{}, `denied: GET SERVER/b is refused: no http rule of the plugin admits this URL; the operator can allow it below grants.guest with http: [{url: "SERVER/*", methods: [GET], private: true}]`},
		"dots":               {`{"url":"SERVER/a/../b"}`, granting(s.rule("/a/*")), host.Traits{}, `invalid: url: a dot segment in the path`},
		"another method":     {`{"method":"DELETE","url":"SERVER/a"}`, granting(s.rule("/*")), host.Traits{}, `denied: DELETE SERVER/a is refused: the http rules of the plugin admit this URL, but not this method; the operator can allow it below grants.guest with http: [{url: "SERVER/*", methods: [DELETE], private: true}]`},
		"readonly":           {`{"method":"POST","url":"SERVER/a"}`, all, host.Traits{Plugin: "guest", Readonly: true}, `denied: POST SERVER/a is refused: a readonly tool may use GET and HEAD only`},
		"readonly, override": {`{"url":"SERVER/a","headers":{"X-HTTP-Method-Override":["DELETE"]}}`, all, host.Traits{Plugin: "guest", Readonly: true}, `denied: GET SERVER/a is refused: a readonly tool may use GET and HEAD only`},
		"a user":             {`{"url":"https://a:b@example.com/"}`, all, host.Traits{}, `invalid: url: a user or password in the URL: the operator configures secrets`},
		"line break":         {`{"url":"SERVER/","headers":{"A":["b\r\nHost: c"]}}`, all, host.Traits{}, `invalid: headers: A has a line break or another control character`},
		"redirect away":      {`{"url":"SERVER/away","redirects":3}`, all, host.Traits{}, `denied: redirect: GET http://169.254.169.254/latest/meta-data is refused: no http rule of the plugin admits this URL`},
		"a large response":   {`{"url":"SERVER/large"}`, granting(small), host.Traits{}, `limit: response body of 127.0.0.1: more than 1024 bytes: the operator can raise max_body in the http rule`},
		"a large request":    {`{"method":"POST","url":"SERVER/","body":"` + strings.Repeat("x", 2<<10) + `"}`, granting(host.HTTPRule{URL: s.URL + "/*", Methods: []string{"POST"}, Private: true, MaxBody: 1 << 10}), host.Traits{}, `limit: request body for 127.0.0.1: more than 1024 bytes: the operator can raise max_body in the http rule`},
		"two bodies":         {`{"method":"POST","url":"SERVER/","body":"a","body_base64":"YQ=="}`, all, host.Traits{}, `invalid: expected "body" or "body_base64", found both`},
		"an unknown field":   {`{"url":"SERVER/","verb":"GET"}`, all, host.Traits{}, `invalid: expected {"url": text, "method": text, "headers": {name: [values]}, "body": text or "body_base64": text, "timeout_ms": number, "redirects": number}, of which only the URL is required`},
		"too many redirects": {`{"url":"SERVER/","redirects":11}`, all, host.Traits{}, `invalid: expected "redirects" from 0 to 10`},
		"a negative time":    {`{"url":"SERVER/","timeout_ms":-1}`, all, host.Traits{}, `invalid: expected a "timeout_ms" up to 86400000`},
		"a private address":  {`{"url":"LOCAL/"}`, granting(host.HTTPRule{URL: local + "/*"}), host.Traits{}, `denied: GET LOCAL/ is refused: the host is at a loopback address; the operator can allow it below grants.guest with http: [{url: "LOCAL/*", methods: [GET], private: true}]`},
	} {
		t.Run(name, func(t *testing.T) {
			s.log.Reset()
			o := s.fetch(t, strings.ReplaceAll(c.request, "LOCAL", local), host.Call{Policy: c.policy, Traits: c.traits, Tool: map[bool]string{true: "tool"}[c.traits.Plugin != ""]})
			require.NoError(t, o.err)
			var got abi.CallFailure
			require.NoError(t, json.Unmarshal(o.Value, &got), string(o.Value))
			require.Equal(t, c.want, strings.NewReplacer(s.URL, "SERVER", local, "LOCAL").Replace(got.Code+": "+got.Message))
			if got.Code == "denied" {
				require.Contains(t, s.log.String(), "http request refused")
			}
		})
	}
}

// TestHTTPAttempts: a call cannot flood the host with requests that are refused.
func TestHTTPAttempts(t *testing.T) {
	s := newWebServer(t, false, echoes)
	const op, request = "http", `{"url":"https://example.com/"}`
	one := capability(dataAt, 4, dataAt+4, int64(len(request)))
	g := guest{data: op + request, invoke: answering(seq(times(1000, drop(one)), tell(one)))}
	o := do(t.Context(), s.host, compile(t, s.host, g.wasm()), host.Call{})
	require.NoError(t, o.err)
	require.JSONEq(t, `{"code":"limit","message":"a call may attempt 1000 http requests"}`, string(o.Value))
	require.Equal(t, 20, strings.Count(s.log.String(), "\n"), "the log has the first ones")
}

type vault map[string]host.Secret

func (v vault) Secret(_ context.Context, name string) (host.Secret, error) {
	secret, ok := v[name]
	if !ok {
		return secret, host.ErrNoSecret
	}
	return secret, nil
}

func TestHTTPSecret(t *testing.T) {
	s := newWebServer(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprint(w, r.Header.Get("Authorization"))
	})
	rule := s.rule("/*")
	rule.Secret = "example"
	const value = "correct-horse-battery"
	secrets := vault{"example": {Value: value, Hosts: []string{"127.0.0.1"}, Place: host.Place{Bearer: true}}}

	o := s.fetch(t, `{"url":"SERVER/"}`, host.Call{Policy: granting(rule), Services: host.Services{Secrets: secrets}})
	require.NoError(t, o.err)
	require.Contains(t, string(o.Value), `"body":"Bearer [secret example]"`)
	require.NotContains(t, string(o.Value), value)

	// Without a value the call ends and names the secret, whether somebody keeps secrets or
	// not.
	for _, secrets := range []host.Secrets{nil, vault{}} {
		o = s.fetch(t, `{"url":"SERVER/"}`, host.Call{Policy: granting(rule), Services: host.Services{Secrets: secrets}})
		require.NoError(t, o.err)
		require.Equal(t, abi.ConnectionRequired, o.Kind)
		require.Equal(t, &abi.Connection{Provider: "example"}, o.Connection)
		require.Equal(t, `connect example first: the secret "example" has no value`, o.Error)
	}
}

// A plugin learns whether a secret of its own rules has a value, and nothing else.
func TestSecretExists(t *testing.T) {
	rule := host.HTTPRule{URL: "https://api.example.com/*", Secret: "example"}
	secrets := vault{"example": {Value: "correct-horse-battery"}, "other": {Value: "correct-horse-battery"}}

	for name, c := range map[string]struct {
		request string
		secrets host.Secrets
		rules   []host.HTTPRule
		code    int32
		want    string
	}{
		"with a value":    {`{"name":"example"}`, secrets, []host.HTTPRule{rule}, 15, `{"exists":true}`},
		"without a value": {`{"name":"example"}`, vault{}, []host.HTTPRule{rule}, 16, `{"exists":false}`},
		"nobody has any":  {`{"name":"example"}`, nil, []host.HTTPRule{rule}, 16, `{"exists":false}`},
		"of another":      {`{"name":"other"}`, secrets, []host.HTTPRule{rule}, abi.CallDenied, `{"code":"denied","message":"no rule of this plugin's http grant names this secret"}`},
		"the empty name":  {`{"name":""}`, secrets, []host.HTTPRule{rule, {URL: "https://b.example.com/*"}}, abi.CallDenied, `{"code":"denied","message":"no rule of this plugin's http grant names this secret"}`},
		"no rule has one": {`{"name":"example"}`, secrets, []host.HTTPRule{{URL: rule.URL}}, abi.CallDenied, `{"code":"denied","message":"no secret goes into the requests of this plugin: have the operator name one in a rule of its http grant"}`},
		"no name":         {`{}`, secrets, []host.HTTPRule{rule}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"name\": text}"}`},
		"no JSON":         {`example`, secrets, []host.HTTPRule{rule}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"name\": text}"}`},
	} {
		t.Run(name, func(t *testing.T) {
			const name = "secret.exists"
			n, size := int64(len(name)), int64(len(c.request))
			o := run(t, guest{data: name + c.request, invoke: seq(
				tell(capability(dataAt, n, dataAt+n, size)), set(0, read(abi.FieldResponse, dataAt, 512)),
				i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite), op(wasmbin.OpDrop), i32(0),
			)}, host.Call{Policy: granting(c.rules...), Services: host.Services{Secrets: c.secrets}})
			require.NoError(t, o.err)
			require.Equal(t, []int32{c.code}, o.codes())
			require.JSONEq(t, c.want, string(o.Value))
		})
	}
}

// TestSecretNeeds: what would grant a secret names it in the rules that the plugin lacks.
func TestSecretNeeds(t *testing.T) {
	a, b := abi.HTTPNeed{URL: "https://a.example/*"}, abi.HTTPNeed{URL: "https://b.example/*", Methods: []string{"POST"}}
	rule := func(n abi.HTTPNeed, secret string) host.HTTPRule {
		return host.HTTPRule{URL: n.URL, Methods: n.Methods, Secret: secret}
	}
	choose := host.HTTPRule{URL: "https://" + host.Choose + "/*", Secret: "y"}

	for name, c := range map[string]struct {
		needs   abi.Needs
		granted []host.HTTPRule
		missing []string
		add     []host.HTTPRule
	}{
		"all granted":               {abi.Needs{HTTP: []abi.HTTPNeed{a}, Secrets: []string{"x"}}, []host.HTTPRule{rule(a, "x")}, nil, nil},
		"more than needed":          {abi.Needs{HTTP: []abi.HTTPNeed{a}}, []host.HTTPRule{rule(a, "x")}, nil, nil},
		"nothing granted":           {abi.Needs{HTTP: []abi.HTTPNeed{a, b}, Secrets: []string{"x", "x"}}, nil, []string{"http GET https://a.example/*", "http POST https://b.example/*", "secret x"}, []host.HTTPRule{rule(a, "x"), rule(b, "x")}},
		"a rule without it":         {abi.Needs{HTTP: []abi.HTTPNeed{a}, Secrets: []string{"x"}}, []host.HTTPRule{rule(a, "")}, []string{"secret x"}, []host.HTTPRule{rule(a, "x")}},
		"one for each rule":         {abi.Needs{HTTP: []abi.HTTPNeed{a, b}, Secrets: []string{"x", "y"}}, nil, []string{"http GET https://a.example/*", "http POST https://b.example/*", "secret x", "secret y"}, []host.HTTPRule{rule(a, "x"), rule(b, "y")}},
		"more than rules":           {abi.Needs{HTTP: []abi.HTTPNeed{a}, Secrets: []string{"x", "y"}}, nil, []string{"http GET https://a.example/*", "secret x", "secret y"}, []host.HTTPRule{rule(a, "x"), choose}},
		"an API of the operator's":  {abi.Needs{Secrets: []string{"y"}}, nil, []string{"secret y"}, []host.HTTPRule{choose}},
		"a rule with another one":   {abi.Needs{HTTP: []abi.HTTPNeed{a}, Secrets: []string{"x", "y"}}, []host.HTTPRule{rule(a, "x")}, []string{"secret y"}, []host.HTTPRule{rule(a, "y")}},
		"an empty name of the rule": {abi.Needs{Secrets: []string{"y"}}, []host.HTTPRule{rule(b, "")}, []string{"secret y"}, []host.HTTPRule{choose}},
	} {
		t.Run(name, func(t *testing.T) {
			grant := host.Grant{HTTP: c.granted}
			require.Equal(t, c.missing, grant.Missing(c.needs))
			add := grant.Lacking(c.needs)
			require.Equal(t, host.Grant{HTTP: c.add}, add)
			require.Empty(t, add.Check())
			both := host.Grant{HTTP: append(c.granted, c.add...)}
			require.Empty(t, both.Missing(c.needs))
		})
	}
	require.Equal(t, []string{"http GET https://a.example/*", "http POST https://b.example/*", "secret x"}, host.Grant{HTTP: []host.HTTPRule{rule(a, "x"), rule(b, "x")}}.Names())
}

// TestHTTPClose: a host that is closed ends requests in flight.
func TestHTTPClose(t *testing.T) {
	arrived := make(chan struct{})
	s := newWebServer(t, false, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	ended := make(chan outcome)
	go func() { ended <- s.fetch(t, `{"url":"SERVER/"}`, host.Call{Policy: granting(s.rule("/*"))}) }()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.host.Close(ctx))
	require.ErrorIs(t, (<-ended).err, host.ErrClosed)
}

func TestHTTPChecks(t *testing.T) {
	for name, c := range map[string]struct {
		rule host.HTTPRule
		want host.GrantProblem
	}{
		"no scheme":       {host.HTTPRule{URL: "example.com/*"}, host.GrantProblem{Key: "http.0.url", Problem: "want https://HOST/PATH"}},
		"lower case":      {host.HTTPRule{URL: "https://example.com/*", Methods: []string{"get"}}, host.GrantProblem{Key: "http.0.methods", Problem: "invalid method \"get\": want upper-case letters, such as GET"}},
		"private to all":  {host.HTTPRule{URL: "https://*/*", Private: true}, host.GrantProblem{Key: "http.0.private", Problem: "a rule for every host cannot be private: name the host, for example \"*.corp.example\""}},
		"too large":       {host.HTTPRule{URL: "https://example.com/*", MaxBody: 1 << 40}, host.GrantProblem{Key: "http.0.max_body", Problem: "1099511627776: want 0 to 268435456 bytes"}},
		"private address": {host.HTTPRule{URL: "https://10.0.0.1/*"}, host.GrantProblem{Key: "http.0.url", Problem: "10.0.0.1 is a private address: only a rule with private: true admits it"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, []host.GrantProblem{c.want}, host.Grant{HTTP: []host.HTTPRule{c.rule}}.Check())
		})
	}
	require.Empty(t, host.Grant{HTTP: []host.HTTPRule{{URL: "https://*/*", Methods: []string{"*"}, MaxBody: 8 << 20}}}.Check())

	require.EqualError(t, host.CheckNeeds(&abi.Manifest{Needs: abi.Needs{HTTP: []abi.HTTPNeed{{URL: "https://1.2.3/*"}}}}), `bad manifest: /needs/http/0/url: host "1.2.3" is neither a name nor an IPv4 address of four decimal numbers`)
	require.NoError(t, host.CheckNeeds(&abi.Manifest{Needs: abi.Needs{HTTP: []abi.HTTPNeed{{URL: "https://10.0.0.1/*"}, {URL: "http://localhost:80/*"}, {URL: "https://[::1]/*"}}}}))

	require.False(t, host.Grant{HTTP: []host.HTTPRule{{URL: "https://example.com/*", Methods: []string{"GET", "HEAD"}}}}.Writes())
	require.True(t, host.Grant{HTTP: []host.HTTPRule{{URL: "https://example.com/*", Methods: []string{"POST"}}}}.Writes())
	require.False(t, host.Grant{HTTP: []host.HTTPRule{{URL: "https://10.0.0.1/*", Private: true}}}.Public())
	require.True(t, host.Grant{HTTP: []host.HTTPRule{{URL: "https://example.com/*"}}}.Public())
}

// TestHTTPOfInnerCalls: the requests of a tool that a tool has called count as its own.
func TestHTTPOfInnerCalls(t *testing.T) {
	s := newWebServer(t, false, func(http.ResponseWriter, *http.Request) {})
	request := `{"url":"` + s.URL + `/"}`
	one := func(at int64) code { return capability(at, 4, at+4, int64(len(request))) }
	inner := compile(t, s.host, guest{data: "http" + request, invoke: answering(seq(times(60, drop(one(dataAt))), drop(one(dataAt))))}.wasm())

	const op, args = "tool.call", `{"tool":"inner"}`
	at := dataAt + int64(len(op+args))
	g := guest{data: op + args + "http" + request, silent: true}
	g.invoke = seq(times(60, drop(one(at))), answering(drop(capability(dataAt, int64(len(op)), dataAt+int64(len(op)), int64(len(args))))))
	requests := 0
	req := host.Call{Policy: granting(s.rule("/*")), Observers: host.Observers{HTTP: func(host.Exchange) { requests++ }}}
	req.Policy.Tools = []string{"inner"}
	req.CallTool = func(ctx context.Context, c host.ToolCall) (abi.Result, error) {
		return s.host.Call(ctx, inner, host.Call{Tool: "inner", Caller: c.Caller, Policy: granting(s.rule("/*")), Observers: req.Observers})
	}

	o := do(t.Context(), s.host, compile(t, s.host, g.wasm()), req)
	require.NoError(t, o.err)
	require.Equal(t, 100, requests)
	require.Contains(t, string(o.Value), `http requests of one call: more than 100 requests`)
}
