package host_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

var buildREST = sync.OnceValues(fixture{dir: "../examples/plugins/rest"}.build)

const teaAPI = `
openapi: 3.0.3
servers: [{url: SERVER/v1}]
paths:
  /teas/{name}:
    get: {operationId: getTea, parameters: [{name: name, in: path, required: true}]}
  /teas:
    post: {operationId: addTea, requestBody: {content: {application/json: {schema: {type: object}}}}}
  /../admin:
    get: {operationId: admin}
`

// TestREST: a described API of a real server of HTTP/1.1 and HTTP/2 is called with a
// secret that the plugin does not see.
func TestREST(t *testing.T) {
	const key = "correct-horse-battery"
	file, err := buildREST()
	require.NoError(t, err)
	wasm, err := os.ReadFile(file)
	require.NoError(t, err)

	for _, http2 := range []bool{false, true} {
		s := newWebServer(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+key {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]string{"did": r.Method + " " + r.URL.EscapedPath(), "sent": string(body), "as": r.Header.Get("Authorization")})
		})
		apis := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(apis, "tea.yaml"), []byte(strings.ReplaceAll(teaAPI, "SERVER", s.URL)), 0o600))
		rule := s.rule("/v1/*", "GET", "POST")
		rule.Secret = "rest"
		secrets := vault{"rest": {Value: key, Hosts: []string{"127.0.0.1"}, Place: host.Place{Bearer: true}}}
		m := compile(t, s.host, wasm)
		call := func(tool, args string, secrets host.Secrets) abi.Result {
			o := do(t.Context(), s.host, m, host.Call{
				Tool: tool, Args: json.RawMessage(args), Traits: host.Traits{Plugin: "rest", Readonly: tool != "call"}, Services: host.Services{Secrets: secrets},
				Policy: host.Policy{Memory: 256 << 20, Grant: host.Grant{HTTP: []host.HTTPRule{rule}, Files: []host.Mount{{Dir: apis, Path: "/apis"}}}},
			})
			require.NoError(t, o.err)
			return o.Result
		}

		r := call("operations", `{"search":"","operation":"","limit":50}`, secrets)
		require.Contains(t, string(r.Value), `"operation":"addTea"`, r.Error)
		r = call("get", `{"operation":"getTea","parameters":{"name":"earl grey"},"limit":20000}`, secrets)
		require.JSONEq(t, `{"status":200,"body":{"did":"GET /v1/teas/earl%20grey","sent":"","as":"Bearer [secret rest]"}}`, string(r.Value), r.Error)
		r = call("call", `{"operation":"addTea","body":{"name":"mate"},"limit":20000}`, secrets)
		require.JSONEq(t, `{"status":200,"body":{"did":"POST /v1/teas","sent":"{\"name\":\"mate\"}","as":"Bearer [secret rest]"}}`, string(r.Value), r.Error)

		// A description widens nothing, and neither does what the tool says of itself.
		r = call("call", `{"operation":"admin","limit":20000}`, secrets)
		require.Equal(t, "http: invalid: url: a dot segment in the path", r.Error)
		r = call("get", `{"operation":"addTea","limit":20000}`, secrets)
		require.Equal(t, "addTea is a POST: use rest_call", r.Error)

		r = call("get", `{"operation":"getTea","parameters":{"name":"x"},"limit":20000}`, vault{})
		require.Equal(t, abi.ConnectionRequired, r.Kind)
		require.Equal(t, &abi.Connection{Provider: "rest"}, r.Connection)
		secrets["rest"] = host.Secret{Value: "another-horse", Hosts: []string{"127.0.0.1"}, Place: host.Place{Bearer: true}}
		r = call("get", `{"operation":"getTea","parameters":{"name":"x"},"limit":20000}`, secrets)
		require.Equal(t, "getTea answers 401 Unauthorized: who are you?", r.Error)
	}
}
