package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A token goes only to the address it was given for, whichever sources give the
// two: the user's own configuration, a file that is named, the environment, or a
// flag.
func TestTokenGoesToItsAddress(t *testing.T) {
	const (
		token = "token: t\n"
		here  = "addr: 127.0.0.1:7070\n"
		there = "addr: https://tools.example\n"
	)
	for _, test := range []struct {
		name       string
		own, named string // files
		env        []string
		flag       string
		nothing    bool   // there is no token to send
		want       string // of the error; empty for no error
	}{
		{name: "no token", own: here, nothing: true},
		{name: "a socket needs none", own: token, nothing: true},
		{name: "a socket that is named needs none", named: token + "addr: /run/toolhost.sock\n", nothing: true},

		{name: "both of the user's", own: token + here},
		{name: "both of a named file", named: token + there},
		{name: "both of the environment", env: []string{"TOOLHOST_TOKEN=t", "TOOLHOST_ADDR=tools.example:443"}},
		{name: "by hand", env: []string{"TOOLHOST_TOKEN=t"}, flag: "tools.example:443"},
		{name: "by hand, past files", own: here, named: there, env: []string{"TOOLHOST_TOKEN=t"}, flag: "tools.example:443"},
		{name: "the environment's token to the user's address", own: here, env: []string{"TOOLHOST_TOKEN=t"}},
		{name: "the same address said twice", own: token + here, flag: "http://127.0.0.1:7070"},
		{name: "the same address in a named file", own: here, named: here, env: []string{"TOOLHOST_TOKEN=t"}},
		{name: "a named file with a token of its own", own: token + here, named: token + there},
		{name: "a name in another case", named: token + "addr: https://Tools.Example\n", flag: "https://tools.example"},

		{
			name: "the environment's token to a named file's address", named: there, env: []string{"TOOLHOST_TOKEN=t"},
			want: "the token of TOOLHOST_TOKEN is not sent to https://tools.example, the addr of NAMED: it was given for no address",
		},
		{
			name: "the environment's token to a named file's address, past the user's", own: here, named: there, env: []string{"TOOLHOST_TOKEN=t"},
			want: "the token of TOOLHOST_TOKEN is not sent to https://tools.example, the addr of NAMED: it was given for 127.0.0.1:7070",
		},
		{
			name: "the user's token to a named file's address", own: token + here, named: there,
			want: "the token of OWN is not sent to https://tools.example, the addr of NAMED: it was given for 127.0.0.1:7070",
		},
		{
			name: "the user's token to an address by hand", own: token + here, flag: "tools.example:443",
			want: "the token of OWN is not sent to tools.example:443, the addr of --addr: it was given for 127.0.0.1:7070",
		},
		{
			name: "a token of no address", own: token, env: []string{"TOOLHOST_ADDR=127.0.0.1:7070"},
			want: "the token of OWN is not sent to 127.0.0.1:7070, the addr of TOOLHOST_ADDR: it was given for no address",
		},
		{
			name: "a named file's token to the user's address", own: here, named: token,
			want: "the token of NAMED is not sent to 127.0.0.1:7070, the addr of OWN: it was given for no address",
		},
		{
			name: "another scheme", named: token + there, flag: "http://tools.example",
			want: "it was given for https://tools.example",
		},
		{
			name: "another port", named: token + here, flag: "127.0.0.1:7071",
			want: "it was given for 127.0.0.1:7070",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("XDG_CONFIG_HOME", home)
			own, named := filepath.Join(home, "toolhost", "toolhost.yaml"), filepath.Join(home, "named.yaml")
			require.NoError(t, os.Mkdir(filepath.Dir(own), 0o700))
			require.NoError(t, os.WriteFile(own, []byte(test.own), 0o600))
			require.NoError(t, os.WriteFile(named, []byte(test.named), 0o600))
			flags := (&app{}).root().PersistentFlags()
			flags.String("addr", "", "")
			require.NoError(t, flags.Set("config", named))
			if test.flag != "" {
				require.NoError(t, flags.Set("addr", test.flag))
			}
			c, err := loadConfig(flags, test.env)
			require.NoError(t, err)

			token, err := c.clientToken()

			if test.want != "" {
				require.Empty(t, token)
				require.ErrorContains(t, err, strings.NewReplacer("OWN", own, "NAMED", named).Replace(test.want))
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.nothing, token == "")
		})
	}
}

// A server that answers with another address gets the client to go nowhere, also
// on the same host.
func TestTokenIsNotRedirected(t *testing.T) {
	heard := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { heard <- r.Header.Get("Authorization") }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL+"/v1/runs", http.StatusTemporaryRedirect))
	defer first.Close()
	t.Setenv("TOOLHOST_TOKEN", "t")

	code, _, errs := toolhost(t.Context(), "tasks", "--addr", first.URL, "--data", t.TempDir())

	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "redirects to "+other.URL+"/v1/runs: use that address if it is the right one")
	require.Contains(t, errs, "use that address if it is the right one")
	require.Empty(t, heard)
}
