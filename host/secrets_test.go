package host_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

var update = flag.Bool("update", false, "write testdata/secrets.txt")

// secretValue needs an escape in every encoding.
const secretValue = `k3y/of+Ana&"her" house`

// A step is code of a guest that has its text in memory.
type step struct {
	text string
	code func(at, size int64) code
}

// responseAt is where a guest has the last response, and its size is in local 0.
const responseAt = 40 << 10

// does calls an operation. The operator's log has what it answered if that was refused.
func does(op, request string) step {
	n := int64(len(op))
	return step{op + request, func(at, size int64) code {
		return seq(set(1, capability(at, n, at+n, size-n)), set(0, read(abi.FieldResponse, responseAt, 16<<10)),
			when(refused(), drop(response(abi.StreamDebug))))
	}}
}

func fetches(path string) step { return does("http", `{"url":"SERVER`+path+`"}`) }

// refused is whether the last function of the contract refused what it got, in local 1.
func refused() code { return seq(get(1), i32(0), []byte{0x48}) } // i32.lt_s

// response writes the last response, which it reads.
func response(s abi.Stream) code {
	return seq(set(0, read(abi.FieldResponse, responseAt, 16<<10)), i32(int64(s)), i32(responseAt), get(0), call(fnWrite))
}

// results writes the last response as the result.
var results = step{"", func(int64, int64) code { return drop(response(abi.StreamResult)) }}

func program(steps []step) guest {
	g := guest{silent: true}
	for _, s := range steps {
		g.invoke = append(g.invoke, s.code(dataAt+int64(len(g.data)), int64(len(s.text)))...)
		g.data += s.text
	}
	g.invoke = append(g.invoke, i32(0)...)
	return g
}

// exfiltration is the other side, and everything that anybody sees of a call.
type exfiltration struct {
	*httptest.Server
	mu   sync.Mutex
	seen strings.Builder
}

func (x *exfiltration) note(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fmt.Fprintf(&x.seen, format+"\n", args...)
}

// Write implements [io.Writer] for the operator's log.
func (x *exfiltration) Write(p []byte) (int, error) {
	x.note("log: %s", bytes.TrimSpace(p))
	return len(p), nil
}

// ServeHTTP gives the secret back in every way that a server has.
func (x *exfiltration) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["Date"] = nil
	value := r.Header.Get("X-Key")
	if r.URL.Path == "/query" {
		value = r.FormValue("key")
	}
	r.Header.Del("X-Key")
	body, _ := io.ReadAll(r.Body)
	if value == "" || r.URL.Path == "/other" {
		x.note("server: %s %s %s %s", r.Method, r.URL, r.Header.Get("X-Own"), body)
	}

	switch r.URL.Path {
	case "/header":
		w.Header().Set("X-Echo", url.QueryEscape(value))
	case "/header-name":
		w.Header().Set("X-"+hex.EncodeToString([]byte(value)), "1")
	case "/base64":
		fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte("x"+value+"y")))
	case "/hex":
		fmt.Fprintf(w, "%X", value)
	case "/json":
		_ = json.NewEncoder(w).Encode(map[string]string{"key": value})
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		gz := gzip.NewWriter(w)
		_, _ = io.WriteString(gz, value)
		_ = gz.Close()
	case "/chunks":
		_, _ = io.WriteString(w, value[:9])
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, value[9:])
	case "/redirect":
		w.Header().Set("Location", "/other?q="+url.QueryEscape(value))
		w.WriteHeader(http.StatusFound)
	case "/error":
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, value)
	case "/cut":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, value)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/used", "/other":
	default:
		_, _ = io.WriteString(w, value)
	}
}

func newExfiltration(t *testing.T) (*exfiltration, *host.Host) {
	x := &exfiltration{}
	x.Server = httptest.NewUnstartedServer(x)
	x.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	x.StartTLS()
	t.Cleanup(x.Close)

	log := slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "trace" {
			return slog.Attr{}
		}
		return a
	}}))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.Certificate().Raw})
	return x, hostWith(t, host.Config{CacheDir: plugintest.CacheDir(), Egress: host.Egress{CA: ca}, Logger: log})
}

// call runs a program and returns what anybody has seen of it.
func (x *exfiltration) call(t *testing.T, h *host.Host, steps []step) string {
	x.seen.Reset()
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].text = strings.ReplaceAll(steps[i].text, "SERVER", x.URL)
	}
	g := program(steps)
	rule := func(path, secret string, methods ...string) host.HTTPRule {
		return host.HTTPRule{URL: x.URL + path, Secret: secret, Methods: methods, Private: true}
	}
	place := func(p host.Place) host.Secret {
		return host.Secret{Value: secretValue, Hosts: []string{"127.0.0.1"}, Place: p}
	}

	req := host.Call{
		ID: "1", Session: "s",
		Policy:    host.Policy{Grant: host.Grant{HTTP: []host.HTTPRule{rule("/query", "query"), rule("/other", "", "*"), rule("/*", "example")}}},
		Observers: host.Observers{HTTP: func(e host.Exchange) { x.note("audit: %s %s %d %s%s", e.Method, e.Host, e.Status, e.Refusal, e.Err) }},
		Services:  host.Services{Secrets: vault{"example": place(host.Place{Header: "X-Key"}), "query": place(host.Place{Query: "key"})}},
	}

	o := do(t.Context(), h, compile(t, h, g.wasm()), req)
	x.note("kind: %s", o.Kind)
	x.note("value: %s", o.Value)
	return x.seen.String()
}

// leaks are the forms in which nobody may see the secret.
func leaks(seen string) (found []string) {
	quoted, _ := json.Marshal(secretValue)
	forms := []string{secretValue, url.QueryEscape(secretValue), url.PathEscape(secretValue), string(quoted[1 : len(quoted)-1]), strings.ReplaceAll(secretValue, `"`, `\"`), hex.EncodeToString([]byte(secretValue))}
	for pad := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", pad) + secretValue))
		forms = append(forms, text[4:len(text)-4])
	}
	spaced := strings.ReplaceAll(seen, "+", " ")
	for _, text := range []string{seen, spaced, unescape(seen), unescape(spaced)} {
		for _, form := range forms {
			if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
				found = append(found, form)
			}
		}
	}
	return found
}

// unescape decodes URL escapes wherever they are.
func unescape(text string) string {
	return regexp.MustCompile("%[0-9a-fA-F]{2}").ReplaceAllStringFunc(text, func(s string) string {
		b, _ := hex.DecodeString(s[1:])
		return string(b)
	})
}

// secretCases are the ways in which a server gives a secret back.
var secretCases = []struct {
	name  string
	steps []step
}{
	{"echo in a body", []step{fetches("/body"), results}},
	{"echo in a header", []step{fetches("/header"), results}},
	{"echo in the name of a header", []step{fetches("/header-name"), results}},
	{"echo in base64, not aligned", []step{fetches("/base64"), results}},
	{"echo in hexadecimal", []step{fetches("/hex"), results}},
	{"echo in JSON", []step{fetches("/json"), results}},
	{"echo in gzip", []step{fetches("/gzip"), results}},
	{"echo in two chunks", []step{fetches("/chunks"), results}},
	{"echo in an error page", []step{fetches("/error"), results}},
	{"echo in a body that is cut", []step{fetches("/cut"), results}},
	{"echo of a query", []step{fetches("/query"), results}},
	{"a redirect as a response", []step{fetches("/redirect"), results}},
	{"a redirect that is followed", []step{does("http", `{"url":"SERVER/redirect","redirects":3}`), results}},
	{"a query twice", []step{fetches("/used"), does("http", `{"url":"SERVER/query?a=1"}`), results}},
}

// TestHostileSecrets: a plugin does not see the secret that a server gives back. The
// golden file has all that anybody sees of each call.
func TestHostileSecrets(t *testing.T) {
	x, h := newExfiltration(t)
	var golden strings.Builder
	names := map[string]bool{}
	for _, c := range secretCases {
		t.Run(c.name, func(t *testing.T) {
			require.False(t, names[c.name], "the name of another case")
			names[c.name] = true
			seen := x.call(t, h, c.steps)
			require.Empty(t, leaks(seen), seen)
			seen = strings.ReplaceAll(strings.ReplaceAll(seen, x.URL, "SERVER"), strings.TrimPrefix(x.URL, "https://"), "SERVER")
			fmt.Fprintf(&golden, "== %s\n%s\n", c.name, seen)
		})
	}
	if t.Failed() || len(names) < len(secretCases) {
		return // one case alone
	}

	const file = "testdata/secrets.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(golden.String()), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), golden.String(), "go test ./host -run TestHostileSecrets -update writes it")
}

// TestUnsearched: what a plugin writes is not searched for secrets, which would tell it
// whether it has guessed one.
func TestUnsearched(t *testing.T) {
	s := newWebServer(t, false, func(http.ResponseWriter, *http.Request) {})
	rule := s.rule("/*")
	rule.Secret = "example"
	request, own := fmt.Sprintf(`{"url":"%s/"}`, s.URL), `{"data":"`+base64.StdEncoding.EncodeToString([]byte(secretWord))+`"}`

	var saved []byte
	m := compile(t, s.host, program([]step{does("http", request), does("checkpoint.save", own), results}).wasm())
	o := do(t.Context(), s.host, m, host.Call{Policy: granting(rule), Services: host.Services{
		Secrets:    vault{"example": {Value: secretWord, Hosts: []string{"127.0.0.1"}, Place: host.Place{Bearer: true}}},
		Checkpoint: &host.Checkpoint{Load: func() []byte { return nil }, Save: func(_ context.Context, data []byte) error { saved = data; return nil }},
	}})
	require.NoError(t, o.err)
	require.Equal(t, secretWord, string(saved))
}

const secretWord = "correct-horse-battery"
