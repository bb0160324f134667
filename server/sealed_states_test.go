package server

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

// TestSealedStates: the state of a run that has used a secret is stored encrypted if there
// is a key, and its values stay masked when it continues, in another process too. Without
// a key it keeps its instance, and without the key of its state it ends.
func TestSealedStates(t *testing.T) {
	const value = "value-of-the-secret-0123456789"
	t.Setenv("TOOLHOST_TEST_SHARED", value)
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(t, err)
	m := plugintest.Manifest("peeks")
	m.Tools[0].Hints.Readonly = true
	peeks := plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Use("kv.get", `{"key":"a"}`)}.Wasm()

	for name, c := range map[string]struct {
		keys, change bool
		status       wire.Status
	}{
		"a key":       {true, false, wire.StatusSucceeded},
		"no key":      {false, false, wire.StatusSucceeded},
		"another key": {true, true, wire.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys, data := filepath.Join(t.TempDir(), "keys"), t.TempDir()
				key := func() { require.NoError(t, os.WriteFile(keys, []byte(vault.NewKey()+"\n"), 0o600)) }
				if c.keys {
					key()
				}
				open := func() service {
					secrets, err := vault.New(map[string]vault.Source{"shared": {Env: "TOOLHOST_TEST_SHARED", Hosts: []string{"example.com"}, Place: host.Place{Bearer: true}}}, vault.Keys(keys), nil)
					require.NoError(t, err)
					return openFolder(t, Config{
						DataDir: data, CacheDir: plugintest.CacheDir(), Secrets: secrets,
						Grants: map[string]plugins.Grant{
							"exec":  {Clock: true, Tools: []string{abi.EveryTool}},
							"peeks": {KV: host.KV{Mode: abi.StoreWrite}, HTTP: []host.HTTPRule{{URL: "https://example.com/*", Secret: "shared"}}},
						},
					}, fstest.MapFS{"exec.wasm": {Data: wasm}, "peeks.wasm": {Data: peeks}})
				}

				s := open()
				id := s.spawnScript(`const v = ["value-of-the-secret", "0123456789"].join("-"); await tools.peeks({}); console.log("one " + v); await sleep(200e3); console.log("two " + v); return "it is " + v`)
				time.Sleep(time.Minute)
				if !c.keys {
					require.Equal(t, wire.StatusRunning, s.run(id).Status)
				} else {
					require.Equal(t, wire.StatusWaiting, s.run(id).Status)
					require.NoError(t, s.Close(done()))
					(&keyedWeb{dir: data}).nowhere(t, value, "thcp\x01")
					if c.change {
						key()
					}
					s = open()
				}
				time.Sleep(4 * time.Minute)
				run := s.run(id)
				require.Equal(t, c.status, run.Status, "%+v", run.Error)
				if c.change {
					require.Equal(t, wire.KindOrphaned, run.Error.Kind)
					return
				}
				require.Equal(t, `"it is [secret shared]"`, string(run.Result))
				require.Equal(t, "one [secret shared]\ntwo [secret shared]\n", s.artifact(alice, id, wire.OutputLog))
				require.NoError(t, s.Close(done()))
			})
		})
	}
}
