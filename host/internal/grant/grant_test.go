package grant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
)

// needs has one need of each capability that an operator grants.
var needs = abi.Needs{
	Clock: true, Random: true, Ask: true, Session: abi.StoreRead, KV: abi.StoreWrite,
	HTTP: []abi.HTTPNeed{{URL: "https://example.com/*"}}, Secrets: []string{"key"}, Tools: []string{"a_b"},
	Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileRead}}, Env: []string{"HOME"},
}

var names = []string{
	"clock", "random", "ask", "session (read)", "kv (write)", "http GET https://example.com/*", "secret key", "tool a_b",
	"files /work (read)", "env HOME",
}

// TestLacking: what a grant lacks, added to it, leaves nothing missing.
func TestLacking(t *testing.T) {
	var nothing grant.Grant
	require.Empty(t, nothing.Names())
	require.Equal(t, names, nothing.Missing(needs))

	all := nothing.Lacking(needs)
	require.Equal(t, names, all.Names())
	require.Empty(t, all.Missing(needs))
	require.Equal(t, grant.Grant{}, all.Lacking(needs))
	require.Equal(t, []grant.Mount{{Dir: "/" + grant.Choose, Path: "/work", Mode: abi.FileRead}}, all.Files)
	require.True(t, all.NamesSecret("key"))
}

func TestCheck(t *testing.T) {
	g := grant.Grant{
		Session: "all", KV: grant.KV{Keys: 1}, Tools: []string{"not a name"},
		HTTP: []grant.HTTPRule{{URL: "ftp://example.com"}}, Files: []grant.Mount{{Path: "work", Mode: "rw"}},
	}
	var keys []string
	for _, p := range g.Check() {
		keys = append(keys, p.Key)
	}
	require.Equal(t, []string{"session", "kv.mode", "http.0.url", "tools.0", "files.0.dir", "files.0.path", "files.0.mode"}, keys)
}

func TestWrites(t *testing.T) {
	require.False(t, grant.Grant{Clock: true, Session: abi.StoreRead, Files: []grant.Mount{{}}}.Writes())
	require.True(t, grant.Grant{HTTP: []grant.HTTPRule{{Methods: []string{"GET", "POST"}}}}.Writes())
	require.True(t, grant.Grant{KV: grant.KV{Mode: abi.StoreWrite}}.Writes())
}
