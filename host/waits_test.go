package host_test

import (
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
)

// TestScriptThatWaits: a script has the same result, output and fuel when it continues in
// a new instance at each wait, in turn compiled and interpreted.
func TestScriptThatWaits(t *testing.T) {
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(t, err)
	source, err := os.ReadFile("testdata/waits.js")
	require.NoError(t, err)
	args, err := json.Marshal(map[string]string{"code": string(source)})
	require.NoError(t, err)
	call := host.Call{ID: "call_1", Args: args, Policy: host.Policy{Grant: host.Grant{Clock: true}}}

	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		want := do(t.Context(), h, compile(t, h, wasm), call)
		require.NoError(t, want.err)
		require.NotEmpty(t, want.Value, want.Error)

		var r relay
		compiled := compile(t, h, wasm)
		interpreted, err := h.CompileWith(t.Context(), wasm, host.CompileOptions{Interpret: true})
		require.NoError(t, err)
		o := r.do(t.Context(), call, func() (*host.Host, *host.Module) {
			if r.instances%7 == 3 {
				return h, interpreted
			}
			return h, compiled
		})
		require.NoError(t, o.err)
		require.Greater(t, r.instances, 50)
		require.Equal(t, string(want.Value), string(o.Value))
		require.Equal(t, want.stdout, o.stdout)
		require.Equal(t, want.Usage.Fuel, o.Usage.Fuel)

		smallest := len(r.states[0])
		for _, s := range r.states {
			smallest = min(smallest, len(s))
		}
		t.Logf("%d instances; states of %d bytes and more", r.instances, smallest)
	})
}

// TestGoroutinesThatWait: so has a Go program with goroutines, channels, timers and locks,
// with the clock of another host each time.
func TestGoroutinesThatWait(t *testing.T) {
	fulltest.Only(t, "takes minutes with the race detector")
	wasm := waitingWasm(t)
	for _, c := range []struct{ name, more, want string }{
		{"ticker", ``, `5`},
		{"timeouts", ``, `["context deadline exceeded","func","true","moved"]`},
		{"select", ``, `["after","1","default"]`},
		{"locks", ``, `110`},
		{"pipeline", `,"n":20`, `2470`},
		{"collector", ``, `140`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hosts []*host.Host
				var modules []*host.Module
				for i := range 2 {
					h := newHost(t, nil)
					m, err := h.CompileWith(t.Context(), wasm, host.CompileOptions{Interpret: i == 1 && !raced}) // whose detector makes that far slower
					require.NoError(t, err)
					hosts, modules = append(hosts, h), append(modules, m)
				}

				var r relay
				call := waitingCall(c.name, c.more)
				call.Policy.Grant.Clock = true
				o := r.do(t.Context(), call, func() (*host.Host, *host.Module) {
					i := r.instances / 3 % 2
					return hosts[i], modules[i]
				})
				require.NoError(t, o.err, o.stderr)
				require.JSONEq(t, c.want, string(o.Value))
				t.Logf("%d instances; states of %d bytes", r.instances, len(r.states[0]))
				require.Greater(t, r.instances, 2)
			})
		})
	}
}
