package server

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
)

type oneSecret host.Secret

func (s oneSecret) Secret(context.Context, string) (host.Secret, error) { return host.Secret(s), nil }

// TestHostileSecretOfRun: a run that writes a secret wherever it can leaves it in no file
// of the host: not in its record, its output, its checkpoint, a value that is kept, or the
// audit log.
func TestHostileSecretOfRun(t *testing.T) {
	const value = "correct-horse-battery"
	web := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(web.Close)
	m := plugintest.Manifest("leaks")
	m.Tools[0].Hints.SupportsBackground = true
	m.Needs = abi.Needs{KV: abi.StoreWrite, Session: abi.StoreWrite, Secrets: []string{"key"}}
	program := plugintest.Do().Request("http", `{"url":"`+web.URL+`/"}`).
		Request("kv.set", `{"key":"a","value":"`+value+`"}`).Request("session.set", `{"key":"a","value":"`+value+`"}`).
		Request("report", `{"status":"`+value+`","summary":"`+value+`"}`).Progress("at "+value).
		Say(abi.StreamOutput, value[:9]).Say(abi.StreamOutput, value[9:]+"!").Say(abi.StreamStderr, value).Say(abi.StreamWarn, value).
		Say(abi.StreamContent, `{"type":"text","text":"`+value+`"}`).Checkpoint(value).
		Say(abi.StreamResult, `{"key":"`+value+`"}`)

	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "audit")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	s := openFolder(t, Config{
		DataDir: data, AuditDir: dir, Host: host.Config{Egress: host.Egress{CA: ca}},
		Secrets: oneSecret{Value: value, Hosts: []string{"127.0.0.1"}, Place: host.Place{Bearer: true}},
		Grants: map[string]plugins.Grant{"leaks": {
			HTTP: []host.HTTPRule{{URL: web.URL + "/*", Secret: "key", Private: true}}, KV: host.KV{Mode: abi.StoreWrite}, Session: abi.StoreWrite,
		}},
	}, fstest.MapFS{"leaks.wasm": {Data: plugintest.Plugin{Manifest: m, Invoke: program}.Wasm()}})

	r := s.settled(alice, s.spawn(alice, "leaks", `{}`))
	require.Contains(t, fmt.Sprintf("%+v", r), "[secret key]")
	require.NotContains(t, fmt.Sprintf("%+v", r), value)
	require.NoError(t, s.Close(done()))

	found := 0
	for _, folder := range []string{data, dir} {
		require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if filepath.Ext(path) != ".wasm" && !bytes.Contains(text, []byte("toolhost_invoke")) { // code of the plugin has it
				require.NotContains(t, string(text), value, path)
			}
			found += bytes.Count(text, []byte("[secret key]"))
			return err
		}))
	}
	require.Positive(t, found)

	events, err := audit.Read(dir, audit.Query{Kinds: []audit.Kind{audit.Leak}})
	require.NoError(t, err)
	require.Len(t, events, 1, "once")
	require.Equal(t, "kv.set", events[0].Action)
	require.Equal(t, []string{"key"}, events[0].Names)
}
