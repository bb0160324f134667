package webui

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

// TestHosts: the overview lists the hosts that share runs, and what differs between them.
func TestHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		require.NotContains(t, open(t, "echo").get("/"), "Hosts")

		shared := memory.New()
		a := openHost(t, shared, "a", "echo", "fails")
		openHost(t, shared, "<b>", "echo")
		page := a.get("/")
		require.Contains(t, page, `Hosts <span class="count">2</span>`)
		require.Contains(t, page, `<bdi>a</bdi> <span class="quiet">this one</span>`)
		require.Contains(t, page, `<bdi>&lt;b&gt;</bdi></th>`)
		require.Regexp(t, regexp.MustCompile(`<bdi>fails</bdi> differs: <bdi>1.0.0</bdi> <code>[0-9a-f]{12}</code> on <bdi>a</bdi>; missing on <bdi>&lt;b&gt;</bdi>`), page)
		require.NotContains(t, page, "<bdi>echo</bdi> differs")
	})
}
