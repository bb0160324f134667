package webui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/vault"
)

// linked is the page behind links for secrets, with a user's call that lacks a secret.
type linked struct {
	t       *testing.T
	service *server.Service
	form    http.Handler
	path    string // of the link
}

func openLinked(t *testing.T, user string) linked {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte(vault.NewKey()+"\n"), 0o600))
	secrets, err := vault.New(map[string]vault.Source{
		"example": {Scope: vault.OfUser, Hosts: []string{"api.example.com"}, Place: host.Place{Bearer: true}},
	}, vault.Keys(keys), nil)
	require.NoError(t, err)

	plugin := plugintest.Plugin{Manifest: plugintest.Manifest("web"), Invoke: plugintest.Do().Use("http", `{"url":"https://api.example.com/"}`)}
	s, err := server.Open(t.Context(), server.Config{
		Folders: []plugins.Folder{{Path: "web", FS: fstest.MapFS{"web.wasm": {Data: plugin.Wasm()}}}}, CacheDir: plugintest.CacheDir(), Secrets: secrets,
		Grants: map[string]plugins.Grant{"web": {HTTP: []host.HTTPRule{{URL: "https://api.example.com/*", Secret: "example"}}}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(t.Context())) })

	s.SecretLinks().ServeAt("http://localhost/secret/")
	r, err := s.Call(t.Context(), server.Request{Session: user + "/<b>work", Tool: "web"})
	require.NoError(t, err)
	require.Equal(t, abi.ConnectionRequired, r.Kind)
	return linked{t, s, NewSecretForm(s, nil), strings.TrimPrefix(r.Connection.SetupURL, "http://localhost")}
}

func (l linked) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(l.t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	l.form.ServeHTTP(w, r)
	return w
}

func (l linked) set() bool {
	list, err := l.service.Secrets("ana").List(l.t.Context(), false)
	require.NoError(l.t, err)
	return list.Secrets[0].Set
}

const linkValue = "correct-horse-battery"

// The page says whose secret is asked for and where it goes, and shows no value. Looking
// at it changes nothing.
func TestSecretLinkPage(t *testing.T) {
	l := openLinked(t, "ana")
	for range 3 {
		w := l.ask("GET", l.path, "")
		require.Equal(t, http.StatusOK, w.Code)
		for _, text := range []string{"<strong>ana</strong>", "<code>example</code>", "<code>web</code>", "<bdi>api.example.com</bdi>", "<bdi>&lt;b&gt;work</bdi>", `type="password"`} {
			require.Contains(t, w.Body.String(), text)
		}
		require.NotContains(t, w.Body.String(), "/ui/", "nothing of the operators' page")
		require.Equal(t, linkPolicy, w.Header().Get("Content-Security-Policy"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}

	w := l.ask("POST", l.path, "value=x")
	require.Equal(t, http.StatusUnprocessableEntity, w.Code)
	require.Contains(t, w.Body.String(), "Not stored: the value is shorter than 6 bytes")
	require.False(t, l.set())
	w = l.ask("POST", l.path, url.Values{"value": {linkValue}}.Encode())
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Body.String(), "is stored, encrypted")
	require.NotContains(t, w.Body.String(), linkValue)
	require.True(t, l.set())
	require.Equal(t, http.StatusNotFound, l.ask("GET", l.path, "").Code)
}

func TestHostileSecretForm(t *testing.T) {
	form := "value=" + linkValue
	for name, test := range map[string]struct {
		method, path, body string // the path of the link if empty
		headers            []string
		status             int
		says               string
	}{
		"a forged link":             {"POST", "/secret/AAAAAAAAAAAAAAAAAAAAAAAAAA", form, nil, 404, "This link was used or has expired"},
		"a page of another origin":  {"POST", "", form, []string{"Origin", "https://evil.example"}, 403, "Requests from other pages are refused"},
		"a frame of another site":   {"POST", "", form, []string{"Sec-Fetch-Site", "cross-site"}, 403, "Requests from other pages are refused"},
		"a form of another type":    {"POST", "", `{"value":"` + linkValue + `"}`, []string{"Content-Type", "text/plain"}, 415, "Only forms of this page are accepted"},
		"a huge form":               {"POST", "", "value=" + strings.Repeat("x", 1<<20), nil, 413, "The form is too large"},
		"a value in the address":    {"POST", "?" + form, "", nil, 422, "Not stored: the value is empty"},
		"an address that sets":      {"GET", "?" + form, "", nil, 200, "Set a secret"},
		"a line break in the value": {"POST", "", form + "%0d%0aX-Admin:%201", nil, 422, "a line break or another control character"},
		"another user in the form":  {"POST", "/secret/", "user=bo&" + form, nil, 404, "404"},
		"another method":            {"PUT", "", form, nil, 405, "Method Not Allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLinked(t, "ana")
			if !strings.HasPrefix(test.path, "/") {
				test.path = l.path + test.path
			}
			w := l.ask(test.method, test.path, test.body, test.headers...)
			require.Equal(t, test.status, w.Code)
			require.Contains(t, w.Body.String(), test.says)
			require.NotContains(t, w.Body.String(), linkValue)
			require.False(t, l.set())
			require.Equal(t, http.StatusOK, l.ask("GET", l.path, "").Code, "the link can still be used")
		})
	}
}
