package server

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
)

// TestHTTP: a plugin reaches what it was granted, the audit log has each request without
// its path, and a tool whose plugin may reach public addresses says so to agents.
func TestHTTP(t *testing.T) {
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) }))
	t.Cleanup(web.Close)
	address := strings.TrimPrefix(web.URL, "https://")
	files := fstest.MapFS{}
	for name, request := range map[string]string{
		"reads": `{"url":"` + web.URL + `/path?q=1"}`, "posts": `{"method":"POST","url":"` + web.URL + `/path"}`, "strays": `{"url":"https://example.com/path"}`,
		"keyed": `{"url":"` + web.URL + `/secret/"}`,
	} {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints.Readonly = name == "posts"
		files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Use("http", request)}.Wasm()}
	}
	private := []host.HTTPRule{{URL: web.URL + "/path", Methods: []string{"*"}, Private: true}, {URL: web.URL + "/secret/*", Secret: "key", Private: true}}
	dir := filepath.Join(t.TempDir(), "audit")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	s := openFolder(t, Config{
		DataDir: t.TempDir(), AuditDir: dir, Host: host.Config{Egress: host.Egress{CA: ca}},
		Grants: map[string]plugins.Grant{"reads": {HTTP: private}, "posts": {HTTP: private}, "keyed": {HTTP: private}, "strays": {HTTP: []host.HTTPRule{{URL: "https://example.org/*"}}}},
	}, files)

	require.Contains(t, string(s.call("ana/default", "reads", `{}`).Value), `"body":"GET"`)
	require.Contains(t, string(s.call(alice, "posts", `{}`).Value), "a readonly tool may use GET and HEAD only")
	require.Contains(t, string(s.call(alice, "strays", `{}`).Value), `the operator can allow it below grants.strays with http: [{url: \"https://example.com/*\", methods: [GET]}]`)
	keyed := s.call(alice, "keyed", `{}`)
	require.Equal(t, abi.ConnectionRequired, keyed.Kind)
	require.Equal(t, &abi.Connection{Provider: "key"}, keyed.Connection)

	open := map[string]bool{}
	for _, d := range s.Definitions(alice) {
		open[d.Name] = d.Annotations.OpenWorld
	}
	require.True(t, open["strays"])
	require.False(t, open["reads"], "its rules are private")

	require.NoError(t, s.Close(done()))
	found, err := audit.Read(dir, audit.Query{})
	require.NoError(t, err)
	var lines []string
	for _, e := range found {
		if e.Kind == audit.Egress {
			lines = append(lines, fmt.Sprint(e.Tool, " ", e.User, " ", e.Method, " ", strings.ReplaceAll(e.Host, address, "SERVER"), " ", e.Status, " ", e.Received, " ", e.Code))
		}
	}
	require.ElementsMatch(t, []string{"reads ana GET SERVER 200 3 ", "posts  POST SERVER 0 0 denied", "strays  GET example.com 0 0 denied", "keyed  GET SERVER 0 0 failed"}, lines)
}
