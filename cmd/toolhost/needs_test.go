package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
)

// The lines that grant needs have the needs of tools, and optional ones as comments.
func TestLinesOfNeeds(t *testing.T) {
	m := &abi.Manifest{
		Name: "shop",
		Needs: abi.Needs{
			KV: abi.StoreRead, HTTP: []abi.HTTPNeed{{URL: "https://a.example/*"}}, Tools: []string{"wordcount"},
			Optional: &abi.Needs{Clock: true, KV: abi.StoreWrite, HTTP: []abi.HTTPNeed{{URL: "https://b.example/*"}}, Tools: []string{"files_read"}},
		},
		Tools: []abi.Tool{
			{Name: "stats", Needs: abi.Needs{Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileRead}}}},
			{Name: "order", Needs: abi.Needs{Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}}, Optional: &abi.Needs{Env: []string{"HOME"}}}},
		},
	}
	lines := func(g plugins.Grant, needs abi.Needs) string {
		return new(config).lines(wantedNeeds{&plugins.Plugin{Manifest: m, Grant: g}, needs})
	}

	require.Equal(t, `grants:
  shop:
    # optional:
    # clock: true
    kv:
      mode: read
      # optional:
      # mode: write
    http:
      - {url: "https://a.example/*"}
      # optional:
      # - {url: "https://b.example/*"}
    files:
      - {dir: /CHOOSE, path: /work, mode: write}
    # optional:
    # env:
    #   HOME: CHOOSE
    tools: [wordcount]
    # optional:
    # tools: [wordcount, files_read]
`, lines(plugins.Grant{}, m.AllNeeds()))

	granted := plugins.Grant{KV: host.KV{Mode: abi.StoreWrite}, HTTP: []host.HTTPRule{{URL: "https://a.example/*"}}, Tools: []string{"wordcount", "files_read"}, Clock: true}
	require.Equal(t, `grants:
  shop:
    # optional:
    # http:
    #   - {url: "https://b.example/*"}
    files:
      - {dir: /CHOOSE, path: /work, mode: read}
`, lines(granted, m.NeedsOf(&m.Tools[0])))
	require.Equal(t, "grants:\n  shop:\n    # optional:\n    # clock: true\n", lines(plugins.Grant{}, abi.Needs{Optional: &abi.Needs{Clock: true}}))
	require.Empty(t, lines(granted, abi.Needs{KV: abi.StoreWrite, Optional: &abi.Needs{Clock: true}}))
}

// No text of a manifest ends a comment.
func TestHostileOptionalNeeds(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		m := &abi.Manifest{Name: "p", Needs: abi.Needs{Optional: &abi.Needs{
			Files: []abi.FileNeed{{Path: "/x" + end + "    clock: true" + end, Mode: abi.FileRead}},
		}}}
		lines := new(config).allLines(&plugins.Plugin{Manifest: m})
		file := filepath.Join(t.TempDir(), "toolhost.yaml")
		require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))

		c, err := loadConfig(flagsOf("--config", file), nil)
		require.NoError(t, err, lines)
		require.Zero(t, c.server.Grants["p"], lines)
		require.Len(t, strings.Split(lines, "\n"), 6, lines)
	}
}
