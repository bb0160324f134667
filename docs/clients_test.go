package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"
)

// Patterns of the pages of clients and of the scripts that drive them.
var (
	fence   = regexp.MustCompile("(?s)```(json|toml)\n(.*?)```")
	program = regexp.MustCompile(`Program\("(.+?)", "(.+?)",`)
	version = regexp.MustCompile(`(\S+)@([\d.]+)`)
)

// TestClientConfigurations holds that each page of a client begins with a configuration for
// stdio and one for HTTP, and that both parse.
func TestClientConfigurations(t *testing.T) {
	pages, err := filepath.Glob("clients/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	index := read(t, "clients.md")

	for _, page := range pages {
		require.True(t, strings.Contains(index, "("+filepath.ToSlash(page)+")"), "clients.md does not name %s", page)
		found := fence.FindAllStringSubmatch(read(t, page), -1)
		require.GreaterOrEqual(t, len(found), 2, page)
		for _, f := range found {
			parse := json.Unmarshal
			if f[1] == "toml" {
				parse = toml.Unmarshal
			}
			require.NoError(t, parse([]byte(f[2]), &map[string]any{}), "%s: %s", page, f[2])
		}
		require.Contains(t, found[0][2], `"mcp"]`, page)
		require.Contains(t, found[1][2], `"http://127.0.0.1:7070/mcp"`, page)
		require.Regexp(t, `(?i)toolhost.token`, found[1][2], page)
	}
}

// TestDrivenClients holds that the pages name the versions that .ci/agents.sh drives. It
// gives the programs the configuration of their pages.
func TestDrivenClients(t *testing.T) {
	versions := map[string]string{}
	for _, v := range version.FindAllStringSubmatch(read(t, "../.ci/agents.sh"), -1) {
		versions[strings.TrimPrefix(v[1], "programs=(")] = v[2]
	}
	programs := program.FindAllStringSubmatch(read(t, "../.ci/agents.py"), -1)
	require.Len(t, programs, len(versions))
	index := read(t, "clients.md")

	for _, p := range programs {
		pkg, page := p[1], p[2]
		require.NotEmpty(t, versions[pkg], pkg)
		driven := strings.Contains(read(t, "clients/"+page), "Driven by `.ci/agents.sh` with "+versions[pkg]+":")
		require.True(t, driven, "clients/%s does not name %s", page, versions[pkg])
		listed := strings.Contains(index, "](clients/"+page+") | driven: "+versions[pkg]+",")
		require.True(t, listed, "clients.md does not name %s of %s", versions[pkg], page)
	}
}

func read(t *testing.T, name string) string {
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}
