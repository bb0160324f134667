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
	"time"

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

func writes(s abi.Stream, text string) step {
	return step{text, func(at, size int64) code {
		return seq(set(1, write(s, at, size)), when(refused(), drop(response(abi.StreamDebug))))
	}}
}

// refused is whether the last function of the contract refused what it got, in local 1.
func refused() code { return seq(get(1), i32(0), []byte{0x48}) } // i32.lt_s

// response writes the last response, which it reads.
func response(s abi.Stream) code {
	return seq(set(0, read(abi.FieldResponse, responseAt, 16<<10)), i32(int64(s)), i32(responseAt), get(0), call(fnWrite))
}

// results writes the last response as the result.
var results = step{"", func(int64, int64) code { return drop(response(abi.StreamResult)) }}

// joins adds the last n bytes of the last body to a stream.
func joins(s abi.Stream, n int64) step {
	return step{"", func(int64, int64) code {
		from := seq(i32(responseAt), get(0), []byte{0x6a}, i32(n+2), []byte{0x6b}) // before "}
		return drop(seq(i32(int64(s)), from, i32(n), call(fnWrite)))
	}}
}

func returns(n int64) step {
	return step{"", func(int64, int64) code { return seq(i32(n), []byte{0x0f}) }}
}

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
	case "/first-half":
		_, _ = io.WriteString(w, url.PathEscape(value)[:12])
	case "/second-half":
		_, _ = io.WriteString(w, url.PathEscape(value)[12:])
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

// keeper notes what is kept.
type keeper struct {
	*exfiltration
	name string
	has  string
}

func (k keeper) Get(context.Context, string) (host.Value, error) {
	return host.Value{Version: 1, Data: json.RawMessage(k.has)}, nil
}

func (k keeper) Set(_ context.Context, key string, data json.RawMessage, _ int64, _ time.Duration) (int64, error) {
	k.note("%s: %s=%s", k.name, key, data)
	return 1, nil
}

func (k keeper) Delete(_ context.Context, key string, _ int64) (bool, error) {
	k.note("%s: deleted %s", k.name, key)
	return true, nil
}

func (k keeper) List(context.Context, string, string, int) ([]host.Value, error) { return nil, nil }

// liveOutput notes each piece of live output.
type liveOutput struct {
	*exfiltration
	name string
}

func (l liveOutput) Write(p []byte) (int, error) {
	l.note("%s: %s", l.name, p)
	return len(p), nil
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
		ID: "1", Session: "s", Observers: host.Observers{Stdout: liveOutput{x, "stdout"}, Stderr: liveOutput{x, "stderr"}},
		Policy: host.Policy{Grant: host.Grant{
			Session: abi.StoreWrite, KV: host.KV{Mode: abi.StoreWrite}, Tools: []string{"other"}, Ask: true,
			HTTP: []host.HTTPRule{rule("/query", "query"), rule("/other", "", "*"), rule("/*", "example")},
		}},
		Services: host.Services{
			Secrets: vault{"example": place(host.Place{Header: "X-Key"}), "query": place(host.Place{Query: "key"})},
			Values:  keeper{x, "session", `1`}, KV: keeper{x, "kv", `1`},
			Checkpoint: &host.Checkpoint{Load: func() []byte { return []byte("1") }, Save: func(data []byte) error { x.note("checkpoint: %s", data); return nil }},
			Ask: func(_ context.Context, q abi.Questions) (abi.Answers, error) {
				x.note("ask: %v", q)
				return abi.Answers{}, nil
			},
		},
	}
	req.Observers.Progress = func(p host.Progress) { x.note("progress: %s", p) }
	req.Observers.HTTP = func(e host.Exchange) { x.note("audit: %s %s %d %s%s", e.Method, e.Host, e.Status, e.Refusal, e.Err) }
	req.Leak = func(operation, secret string) { x.note("audit: leak of %s in %s", secret, operation) }
	req.Ungranted = func(tool string, times int) { x.note("audit: ungranted %s, %d times", tool, times) }

	// The other tool uses the secret itself, and answers with its arguments.
	other := compile(t, h, program([]step{does("http", `{"url":"`+x.URL+`/used"}`), writes(abi.StreamResult, `"used"`)}).wasm())
	req.CallTool = func(ctx context.Context, tc host.ToolCall) (abi.Result, error) {
		x.note("tool: %s %s", tc.Tool, tc.Args)
		inner := host.Call{Tool: "other", Caller: tc.Caller, Policy: req.Policy, Services: host.Services{Secrets: req.Secrets}}
		inner.Policy.Timeout = time.Hour
		return h.Call(ctx, other, inner)
	}

	o := do(t.Context(), h, compile(t, h, g.wasm()), req)
	x.note("kind: %s", o.Kind)
	for _, part := range []struct {
		name  string
		value any
	}{{"value", string(o.Value)}, {"content", o.Content}, {"error", o.Error}, {"summary", o.Summary}, {"connection", o.Connection}, {"cause", o.err}} {
		if text := plainText(part.value); text != "" && text != "null" && text != `""` {
			x.note("%s: %s", part.name, text)
		}
	}
	return x.seen.String()
}

func plainText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case error:
		return v.Error()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSpace(b.String())
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

// TestHostileSecrets: a plugin that knows a secret cannot write it anywhere. The golden
// file has all that anybody sees of each call.
func TestHostileSecrets(t *testing.T) {
	x, h := newExfiltration(t)
	var golden strings.Builder
	names := map[string]bool{}
	for _, c := range secretCases() {
		t.Run(c.name, func(t *testing.T) {
			require.False(t, names[c.name], "the name of another case")
			names[c.name] = true
			seen := x.call(t, h, c.steps)
			require.Empty(t, leaks(seen), seen)
			seen = strings.ReplaceAll(strings.ReplaceAll(seen, x.URL, "SERVER"), strings.TrimPrefix(x.URL, "https://"), "SERVER")
			fmt.Fprintf(&golden, "== %s\n%s\n", c.name, seen)
		})
	}
	if t.Failed() || len(names) < len(secretCases()) {
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
