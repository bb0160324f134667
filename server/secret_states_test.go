package server

import (
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

// TestSecretStates: a run whose rules have a secret gives up its instance as any other. It
// has no value, so its state needs no key.
func TestSecretStates(t *testing.T) {
	t.Setenv("TOOLHOST_TEST_SHARED", "value-of-the-secret-0123456789")
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(t, err)
	m := plugintest.Manifest("peeks")
	m.Tools[0].Hints.Readonly = true
	peeks := plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Use("kv.get", `{"key":"a"}`)}.Wasm()

	synctest.Test(t, func(t *testing.T) {
		secrets, err := vault.New(map[string]vault.Source{"shared": {Env: "TOOLHOST_TEST_SHARED", Hosts: []string{"example.com"}, Place: host.Place{Bearer: true}}}, "", nil)
		require.NoError(t, err)
		s := openFolder(t, Config{
			DataDir: t.TempDir(), CacheDir: plugintest.CacheDir(), Secrets: secrets,
			Grants: map[string]plugins.Grant{
				"exec":  {Clock: true, Tools: []string{abi.EveryTool}},
				"peeks": {KV: host.KV{Mode: abi.StoreWrite}, HTTP: []host.HTTPRule{{URL: "https://example.com/*", Secret: "shared"}}},
			},
		}, fstest.MapFS{"exec.wasm": {Data: wasm}, "peeks.wasm": {Data: peeks}})

		id := s.spawnScript(`await tools.peeks({}); await sleep(200e3); return "done"`)
		time.Sleep(time.Minute)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)

		time.Sleep(4 * time.Minute)
		require.Equal(t, `"done"`, string(s.run(id).Result))
		require.NoError(t, s.Close(done()))
	})
}
