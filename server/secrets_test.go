package server

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/vault"
)

const (
	valueOfAna = "correct-horse-battery"
	valueOfBo  = "staple-of-bo-only"
)

// keyedWeb is a service with a plugin that sends the secret of its user to a real server.
type keyedWeb struct {
	service
	keys    string // the file
	address string // of the web server
	dir     string // of the data
	audit   string
	seen    chan string // what the server gets
	cfg     Config
	files   fstest.MapFS
}

func openKeyed(t *testing.T, claims ...string) *keyedWeb {
	t.Helper()
	k := &keyedWeb{seen: make(chan string, 10), keys: filepath.Join(t.TempDir(), "keys"), dir: t.TempDir(), audit: filepath.Join(t.TempDir(), "audit")}
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.seen <- r.Header.Get("Authorization")
		fmt.Fprint(w, "you sent "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(web.Close)
	require.NoError(t, os.WriteFile(k.keys, []byte(vault.NewKey()+"\n"), 0o600))

	plugin := func(name, op, request string) {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints.SupportsBackground = true
		k.files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Use(op, request)}.Wasm()}
	}
	k.files = fstest.MapFS{}
	plugin("asks", "http", `{"url":"`+web.URL+`/"}`)
	plugin("knows", "secret.exists", `{"name":"example"}`)
	for _, name := range claims { // that it lacks the secret
		p := plugintest.Plugin{Manifest: plugintest.Manifest(name), Invoke: plugintest.Do().Say(abi.StreamError, `{"provider":"example"}`).Return(abi.InvokeConnection)}
		k.files[name+".wasm"] = &fstest.MapFile{Data: p.Wasm()}
	}
	rules := []host.HTTPRule{{URL: web.URL + "/*", Secret: "example", Private: true}}
	address := strings.TrimPrefix(web.URL, "https://")
	k.cfg = Config{
		DataDir: k.dir, AuditDir: k.audit, Grants: map[string]plugins.Grant{"asks": {HTTP: rules}, "knows": {HTTP: rules}, "claims": {HTTP: rules}},
		Host: host.Config{Egress: host.Egress{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})}},
	}
	k.address = address
	k.cfg.Secrets = k.vault(t, address)
	k.service = openFolder(t, k.cfg, k.files)
	return k
}

func (k *keyedWeb) vault(t *testing.T, address string) *vault.Vault {
	t.Helper()
	name, _, _ := strings.Cut(address, ":")
	hosts, place := []string{name}, host.Place{Bearer: true}
	v, err := vault.New(map[string]vault.Source{
		"example": {Scope: vault.OfUser, Hosts: hosts, Place: place}, "shared": {Env: "TOOLHOST_TEST_SHARED", Hosts: hosts, Place: place},
	}, vault.Keys(k.keys), nil)
	require.NoError(t, err)
	return v
}

// Each user has a value, which goes into the requests of their calls and runs, and nobody
// sees it.
func TestSecretsOfUsers(t *testing.T) {
	k := openKeyed(t)
	ctx := t.Context()
	missing := k.call("ana/default", "asks", `{}`)
	require.Equal(t, abi.ConnectionRequired, missing.Kind)
	require.Equal(t, "example", missing.Connection.Provider)
	require.JSONEq(t, `{"exists":false}`, string(k.call("ana/default", "knows", `{}`).Value))

	require.NoError(t, k.Secrets("ana").Set(ctx, "example", valueOfAna))
	require.NoError(t, k.Secrets("bo").Set(ctx, "example", valueOfBo))
	require.JSONEq(t, `{"exists":true}`, string(k.call("ana/default", "knows", `{}`).Value))
	require.JSONEq(t, `{"exists":false}`, string(k.call(alice, "knows", `{}`).Value), "all sessions without a user share one value")

	r := k.call("ana/default", "asks", `{}`)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen)
	require.NotContains(t, string(r.Value), valueOfAna)
	run := k.settled("bo/work", k.spawn("bo/work", "asks", `{}`))
	require.Equal(t, engine.StatusSucceeded, run.Status)
	require.Equal(t, "Bearer "+valueOfBo, <-k.seen)

	removed, err := k.Secrets("ana").Remove(ctx, "example")
	require.NoError(t, err)
	require.True(t, removed)
	require.Equal(t, abi.ConnectionRequired, k.call("ana/default", "asks", `{}`).Kind)

	require.NoError(t, k.Close(done()))
	k.nowhere(t, valueOfAna, valueOfBo)
	events, err := audit.Read(k.audit, audit.Query{})
	require.NoError(t, err)
	var acts []string
	for _, e := range events {
		if e.Kind == audit.Admin {
			acts = append(acts, e.Action+" "+e.User+" "+e.ID)
		}
	}
	require.Equal(t, []string{"secret removed ana example", "secret set bo example", "secret set ana example"}, acts)
}

// nowhere checks that no file has one of the texts.
func (k *keyedWeb) nowhere(t *testing.T, texts ...string) {
	t.Helper()
	for _, dir := range []string{k.dir, k.audit} {
		if dir == "" {
			continue
		}
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			for _, text := range texts {
				require.NotContains(t, string(data), text, path)
			}
			return err
		}))
	}
}

// A new first key encrypts what the old one did when the service opens, or is given its
// grants again, and then the old one can go.
func TestKeysOfSecrets(t *testing.T) {
	k := openKeyed(t)
	ctx := t.Context()
	require.NoError(t, k.Secrets("ana").Set(ctx, "example", valueOfAna))
	stored := func() string {
		v, err := k.engine.Value(ctx, engine.Scope{Name: "secret:ana"}, "example")
		require.NoError(t, err)
		return string(v.Data)
	}
	first, old := stored(), string(must(os.ReadFile(k.keys)))
	next := vault.NewKey() + "\n"

	rekey := func(keys string) error {
		require.NoError(t, os.WriteFile(k.keys, []byte(keys), 0o600))
		k.cfg.Secrets = k.vault(t, k.address)
		_, err := k.Reconfigure(ctx, func(to *Config) { to.Secrets = k.cfg.Secrets })
		return err
	}
	require.ErrorContains(t, rekey(next), "cannot be decrypted with these keys")
	k.call("ana/default", "asks", `{}`)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen, "the old keys stay in force")
	require.Equal(t, first, stored())
	require.NoError(t, rekey(next+old))
	require.NotEqual(t, first, stored())
	require.NoError(t, rekey(next))
	k.call("ana/default", "asks", `{}`)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen)
	require.NoError(t, k.Close(done()))

	third := vault.NewKey() + "\n"
	require.NoError(t, os.WriteFile(k.keys, []byte(third+next), 0o600))
	k.cfg.Secrets = k.vault(t, k.address)
	k.service = openFolder(t, k.cfg, k.files)
	require.NoError(t, rekey(third))
	k.call("ana/default", "asks", `{}`)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen, "after a start")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What a model reads of a secret without a value, and of one that cannot be read.
func TestMissingSecrets(t *testing.T) {
	k := openKeyed(t)
	require.NoError(t, k.Secrets("ana").Set(t.Context(), "example", valueOfAna))
	require.Equal(t, `connect example first: the secret "example" has no value: set it with PUT /v1/secrets/example, or have the operator set it`, k.asks("bo/default"))
	require.Equal(t, `connect example first: the secret "example" has no value: set it with toolhost secret set example`, k.asks("ana"), "a session with the name of a user")
	require.NoError(t, k.Close(done()))
	require.NoError(t, os.WriteFile(k.keys, []byte(vault.NewKey()+"\n"), 0o600))
	k.cfg.Secrets = k.vault(t, k.address)
	k.service = openFolder(t, k.cfg, k.files)
	require.Equal(t, `{"code":"failed","message":"secret \"example\": it cannot be used now: the operator finds the reason in the log"}`, k.asks("ana/default"))
	require.Empty(t, k.seen, "nothing was sent")
}

// asks calls the plugin, and returns what the model sees.
func (k *keyedWeb) asks(session string) string {
	r := k.call(session, "asks", `{}`)
	if r.Kind != abi.Success {
		return r.Error
	}
	return string(r.Value)
}
