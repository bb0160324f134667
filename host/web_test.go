package host_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// buildWeb builds a plugin that uses http.Get, once.
var buildWeb = sync.OnceValues(fixture{dir: "../examples/plugins/web"}.build)

func webWasm(t testing.TB) []byte {
	t.Helper()
	file, err := buildWeb()
	require.NoError(t, err)
	wasm, err := os.ReadFile(file)
	require.NoError(t, err)
	return wasm
}

// TestWeb: Go's http.Get works in a sandbox, over a real server of HTTP/1.1 and HTTP/2,
// with redirects and compression.
func TestWeb(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := newWebServer(t, http2, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/old":
				http.Redirect(w, r, "/page", http.StatusMovedPermanently)
			case "/out":
				http.Redirect(w, r, "https://other.example/", http.StatusFound)
			default:
				fmt.Fprintf(w, "<title>%s</title><p>Hello from %s<script>x</script>", r.URL.Path, r.Proto)
			}
		})
		m := compile(t, s.host, webWasm(t))
		fetch := func(path string) outcome {
			return do(t.Context(), s.host, m, host.Call{
				Tool: "fetch", Args: json.RawMessage(`{"url":"` + s.URL + path + `","limit":1000}`), Policy: host.Policy{Memory: 256 << 20, Grant: host.Grant{HTTP: []host.HTTPRule{s.rule("/*")}}},
				Traits: host.Traits{Plugin: "web", Readonly: true},
			})
		}

		for range 2 { // the second continues from the snapshot of the first
			o := fetch("/old")
			require.NoError(t, o.err)
			require.Equal(t, abi.Success, o.Kind, o.Error)
			require.JSONEq(t, fmt.Sprintf(`{"url":"%s/page","title":"/page","text":"Hello from %s"}`, s.URL, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]), string(o.Value))
		}
		o := fetch("/out")
		require.Equal(t, abi.ToolError, o.Kind)
		require.Equal(t, `http: denied: GET https://other.example/ is refused: no http rule of the plugin admits this URL; the operator can allow it below grants.web with http: [{url: "https://other.example/*", methods: [GET]}]`, o.Error)
	}
}

// BenchmarkHTTP compares a request of 1 KiB from a hand-made plugin with Go's own client
// in the same run.
func BenchmarkHTTP(b *testing.B) {
	body := strings.Repeat("x", 1<<10)
	s := newWebServer(b, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	client := s.Client()
	plain := func() {
		resp, err := client.Get(s.URL)
		require.NoError(b, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
	}

	const requests = 90 // fewer than a call may make
	request := `{"url":"` + s.URL + `/"}`
	one := capability(dataAt, 4, dataAt+4, int64(len(request)))
	g := guest{data: "http" + request, invoke: answering(seq(times(requests-1, drop(one)), tell(one)))}
	m := compile(b, s.host, g.wasm())
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			plain()
		}
	})
	b.Run("plugin", func(b *testing.B) {
		for n := 0; n < b.N; n += requests {
			o := do(b.Context(), s.host, m, host.Call{Policy: granting(s.rule("/*"))})
			require.NoError(b, o.err)
			require.Contains(b, string(o.Value), `"status":200`)
		}
	})
	web := compile(b, s.host, webWasm(b))
	b.Run("web_fetch", func(b *testing.B) {
		for b.Loop() {
			o := do(b.Context(), s.host, web, host.Call{Tool: "fetch", Args: json.RawMessage(`{"url":"` + s.URL + `","limit":5000}`), Policy: host.Policy{Memory: 256 << 20, Grant: host.Grant{HTTP: []host.HTTPRule{s.rule("/*")}}}})
			require.Equal(b, abi.Success, o.Kind, o.Error)
		}
	})
}
