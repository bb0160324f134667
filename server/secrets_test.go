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
	"github.com/toolhost/toolhost/server/wire"
)

const (
	valueOfAna = "correct-horse-battery"
	valueOfBo  = "staple-of-bo-only"
)

// keyedWeb is a service with a plugin that sends the secret of its user to a real server.
type keyedWeb struct {
	service
	keys  string // the file
	dir   string // of the data
	audit string
	seen  chan string // what the server gets
	cfg   Config
	files fstest.MapFS
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

	list, err := k.Secrets("ana").List(ctx, false)
	require.NoError(t, err)
	require.Len(t, list.Secrets, 1)
	require.True(t, list.Secrets[0].Set)
	list, err = k.Secrets("").List(ctx, true)
	require.NoError(t, err)
	require.Equal(t, []string{"example user false", "shared operator false"}, []string{shown(list.Secrets[0]), shown(list.Secrets[1])})

	removed, err := k.Secrets("ana").Remove(ctx, "example")
	require.NoError(t, err)
	require.True(t, removed)
	removed, err = k.Secrets("ana").Remove(ctx, "example")
	require.NoError(t, err)
	require.False(t, removed)
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

func shown(s wire.Secret) string { return fmt.Sprint(s.Name, " ", s.Scope, " ", s.Set) }

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
		v, err := k.engine.Value(ctx, k.Secrets("ana").scope(), "example")
		require.NoError(t, err)
		return string(v.Data)
	}
	first, old := stored(), string(must(os.ReadFile(k.keys)))
	next := vault.NewKey() + "\n"

	require.NoError(t, os.WriteFile(k.keys, []byte(next+old), 0o600))
	k.call("ana/default", "asks", `{}`)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen, "both decrypt")
	require.Equal(t, first, stored())
	_, err := k.Reconfigure(ctx, func(*Config) {})
	require.NoError(t, err)
	require.NotEqual(t, first, stored())

	require.NoError(t, os.WriteFile(k.keys, []byte(next), 0o600))
	k.call("ana/default", "asks", `{}`)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen)
	require.NoError(t, k.Close(done()))

	third := vault.NewKey() + "\n"
	require.NoError(t, os.WriteFile(k.keys, []byte(third+next), 0o600))
	k.service = openFolder(t, k.cfg, k.files)
	require.NoError(t, os.WriteFile(k.keys, []byte(third), 0o600))
	k.call("ana/default", "asks", `{}`)
	require.Equal(t, "Bearer "+valueOfAna, <-k.seen, "after a start")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What is tried with secrets of users, and what is answered.
func TestHostileSecrets(t *testing.T) {
	const failed = `{"code":"failed","message":"secret \"example\": it cannot be used now: the operator finds the reason in the log"}`
	for _, test := range []struct {
		name   string
		do     func(k *keyedWeb) (said string)
		answer string
	}{
		{"the secret of another user", func(k *keyedWeb) string { return k.asks("bo/default") }, "connect example first: the secret \"example\" has no value: set it with PUT /v1/secrets/example, or have the operator set it"},
		{"a session with the other's name in it", func(k *keyedWeb) string { return k.asks("ana") }, "connect example first: the secret \"example\" has no value: set it with toolhost secret set example"},
		{"a record of another user, copied", func(k *keyedWeb) string {
			k.copy("ana", "bo")
			return k.asks("bo/default")
		}, failed},
		{"a record that was changed", func(k *keyedWeb) string {
			k.change(func(data []byte) []byte { data[len(data)-1] ^= 1; return data })
			return k.asks("ana/default")
		}, failed},
		{"a record of another version", func(k *keyedWeb) string {
			k.change(func(data []byte) []byte { data[0] = 9; return data })
			return k.asks("ana/default")
		}, failed},
		{"a record that was cut", func(k *keyedWeb) string {
			k.change(func(data []byte) []byte { return data[:5] })
			return k.asks("ana/default")
		}, failed},
		{"another key", func(k *keyedWeb) string {
			k.write(vault.NewKey()+"\n", 0o600)
			return k.asks("ana/default")
		}, failed},
		{"keys that others can read", func(k *keyedWeb) string {
			require.NoError(k.t, os.Chmod(k.keys, 0o644))
			return k.asks("ana/default")
		}, failed},
		{"no keys any more", func(k *keyedWeb) string {
			require.NoError(k.t, os.Remove(k.keys))
			return k.asks("ana/default")
		}, failed},
		{"setting without keys", func(k *keyedWeb) string {
			require.NoError(k.t, os.Remove(k.keys))
			return k.set("ana", "example", valueOfAna)
		}, "secrets of users cannot be kept here: have the operator set secrets_key"},
		{"a header in the value", func(k *keyedWeb) string { return k.set("ana", "example", "abcdef\r\nX-Admin: 1") }, "value: the value has a line break or another control character"},
		{"a value of a byte", func(k *keyedWeb) string { return k.set("ana", "example", "x") }, "value: the value is shorter than 6 bytes: it could not be masked"},
		{"no value", func(k *keyedWeb) string { return k.set("ana", "example", "") }, "value: the value is empty"},
		{"a value without end", func(k *keyedWeb) string { return k.set("ana", "example", strings.Repeat("x", 1<<20)) }, "value: the value has 1048576 bytes, and at most 16384 are allowed"},
		{"a secret of the operator", func(k *keyedWeb) string { return k.set("ana", "shared", valueOfAna) }, "name: it is a secret of the operator, whose value comes from the configuration"},
		{"a name that is not configured", func(k *keyedWeb) string { return k.set("ana", "other", valueOfAna) }, "there is nothing with that name"},
		{"a name of a key-value store", func(k *keyedWeb) string { return k.set("ana", "../kv:asks", valueOfAna) }, "there is nothing with that name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := openKeyed(t)
			require.NoError(t, k.Secrets("ana").Set(t.Context(), "example", valueOfAna))
			require.Equal(t, test.answer, test.do(k))
			require.Empty(t, k.seen, "nothing was sent")
		})
	}
}

// asks calls the plugin, and returns what the model sees.
func (k *keyedWeb) asks(session string) string {
	r := k.call(session, "asks", `{}`)
	if r.Kind != abi.Success {
		return r.Error
	}
	return string(r.Value)
}

func (k *keyedWeb) set(user, name, value string) string {
	err := k.Secrets(user).Set(k.t.Context(), name, value)
	r := ReasonOf(err)
	require.Error(k.t, err)
	if r.Field != "" {
		return r.Field + ": " + r.Text
	}
	return r.Text
}

func (k *keyedWeb) write(text string, mode os.FileMode) {
	require.NoError(k.t, os.WriteFile(k.keys, []byte(text), mode))
}

func (k *keyedWeb) copy(from, to string) {
	v, err := k.engine.Value(k.t.Context(), k.Secrets(from).scope(), "example")
	require.NoError(k.t, err)
	v.Version = AnyVersion
	_, err = k.engine.PutValue(k.t.Context(), k.Secrets(to).scope(), v, secretLimit)
	require.NoError(k.t, err)
}

func (k *keyedWeb) change(how func(data []byte) []byte) {
	v, err := k.engine.Value(k.t.Context(), k.Secrets("ana").scope(), "example")
	require.NoError(k.t, err)
	v.Data = how(v.Data)
	_, err = k.engine.PutValue(k.t.Context(), k.Secrets("ana").scope(), v, secretLimit)
	require.NoError(k.t, err)
}
