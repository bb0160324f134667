package host_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// A plugin learns what this call was granted, and nothing of other rules.
func TestGranted(t *testing.T) {
	grant := host.Grant{
		Clock: true, KV: host.KV{Mode: abi.StoreWrite}, Env: map[string]string{"A": ""}, Files: []host.Mount{{Dir: t.TempDir(), Path: "/work"}},
		HTTP: []host.HTTPRule{{URL: "https://a.example/*", Methods: []string{"GET", "POST"}, Secret: "key"}},
	}
	const yes, no = `{"granted":true}`, `{"granted":false}`
	for request, want := range map[string]string{
		`{}`:                           yes,
		`{"clock":true,"env":["A"]}`:   yes,
		`{"clock":true,"random":true}`: no,
		`{"ask":true}`:                 no,
		`{"files":[{"path":"/work","mode":"read"}]}`:                           yes,
		`{"files":[{"path":"/work","mode":"write"}]}`:                          no,
		`{"http":[{"url":"https://a.example/x"}]}`:                             yes,
		`{"http":[{"url":"https://b.example/x"}]}`:                             no,
		`{"secrets":["key"]}`:                                                  yes,
		`{"secrets":["kex"]}`:                                                  no,
		`{"kv":"write"}`:                                                       yes,
		`readonly {"kv":"write"}`:                                              no,
		`readonly {"kv":"read"}`:                                               yes,
		`readonly {"http":[{"url":"https://a.example/x"}]}`:                    yes,
		`readonly {"http":[{"url":"https://a.example/x","methods":["POST"]}]}`: no,
		`{"clock":"yes"}`:                                                      `{"code":"invalid","message":"/clock: expected true or false, found a string"}`,
		`{"gpu":true}`:                                                         `{"code":"invalid","message":"/gpu: this version cannot grant it to any plugin, expected one of files, env, clock, random, ask, session, kv, tools, http, secrets, optional"}`,
		`{"optional":{"clock":true}}`:                                          `{"code":"invalid","message":"/optional: ask for these needs as those of the request"}`,
		`{"env":["A"` + strings.Repeat(`,"A"`, 16) + `]}`:                      `{"code":"invalid","message":"expected at most 16 needs, found 17"}`,
		`{"env":["` + strings.Repeat("A", 16<<10) + `"]}`:                      `{"code":"invalid","message":"expected at most 16384 bytes, found 16396"}`,
		`not JSON`: `{"code":"invalid","message":"expected JSON: invalid character 'o' in literal null (expecting 'u') (line 1, column 2)"}`,
	} {
		t.Run(request[:min(len(request), 80)], func(t *testing.T) {
			text, readonly := strings.CutPrefix(request, "readonly ")
			o := run(t, ask("granted", text), host.Call{Traits: host.Traits{Readonly: readonly}, Policy: host.Policy{Grant: grant}})
			require.NoError(t, o.err)
			require.JSONEq(t, want, string(o.Value))
		})
	}
}
