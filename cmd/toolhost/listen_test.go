package main

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server listens at exactly the given address: an IPv4 address does not include
// IPv6, nor the reverse. It prints the address by which this machine reaches it.
func TestListen(t *testing.T) {
	six := true
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		six = false
	} else {
		require.NoError(t, l.Close())
	}
	const one, all = "http://127.0.0.1:PORT", "http://0.0.0.0:PORT"
	for _, test := range []struct {
		listen, says, page string
		four, six          bool // whether it is reached by 127.0.0.1, and by [::1]
	}{
		{"127.0.0.1:0", one, one + "/", true, false},
		{"[::ffff:127.0.0.1]:0", one, one + "/", true, false},
		{"0.0.0.0:0", all, one + "/", true, false},
		{"[::1]:0", "http://[::1]:PORT", "http://[::1]:PORT/", false, true},
		{"[::]:0", "http://[::]:PORT", "http://[::1]:PORT/", false, true},
		{":0", "http://[::]:PORT", "http://localhost:PORT/", true, true},
	} {
		t.Run(test.listen, func(t *testing.T) {
			if test.six && !six {
				t.Skip("there is no IPv6 here")
			}
			t.Setenv("TOOLHOST_TOKEN", "long-enough-token")
			said := startServer(t, "--listen", test.listen).String()
			_, page, ok := strings.Cut(said, "page for operators: ")
			require.True(t, ok, said)
			page, _, _ = strings.Cut(page, "\n")
			_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(page, "http://"), "/"))
			require.NoError(t, err)
			said = strings.ReplaceAll(said, ":"+port, ":PORT")
			require.Contains(t, said, "listening on "+test.says+"\n")
			require.Contains(t, said, "page for operators: "+test.page+"\n")
			for host, want := range map[string]bool{"127.0.0.1": test.four, "::1": test.six} {
				if host == "::1" && !six {
					continue
				}
				resp, err := http.Get("http://" + net.JoinHostPort(host, port) + "/healthz")
				require.Equal(t, want, err == nil, "%s: %v", host, err)
				if err == nil {
					require.NoError(t, resp.Body.Close())
					require.Equal(t, http.StatusOK, resp.StatusCode)
				}
			}
			req, err := http.NewRequest("GET", page, nil)
			require.NoError(t, err)
			req.SetBasicAuth("", os.Getenv("TOOLHOST_TOKEN"))
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
}

// A name is listened at where it leads to, and that is what is said.
func TestListenAtName(t *testing.T) {
	said := startServer(t, "--listen", "localhost:0").String()
	_, address, ok := strings.Cut(said, "listening on http://")
	require.True(t, ok, said)
	address, _, _ = strings.Cut(address, "\n")
	at, err := netip.ParseAddrPort(address)
	require.NoError(t, err, said)
	require.True(t, at.Addr().IsLoopback(), said)
	resp, err := http.Get("http://" + address + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// The zone of an address is escaped in a URL, as a client takes it.
func TestURLOfZone(t *testing.T) {
	require.Equal(t, "http://[fe80::1%25eth0]:7070", urlOf("[fe80::1%eth0]:7070"))
	require.Equal(t, "tcp6", family("[fe80::1%eth0]:7070"))
}
