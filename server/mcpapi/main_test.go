package mcpapi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// built is the folder of the plugins of this test binary. Its subfolders are
// one plugin each, beside the cache of what they compile to.
var built string

func TestMain(m *testing.M) {
	code, err := buildPlugins(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildPlugins(run func() int) (int, error) {
	var err error
	if built, err = os.MkdirTemp("", "mcpapi"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(built)
	for name, source := range map[string]string{
		"wordcount": "../../examples/plugins/wordcount",
		"primes":    "../../examples/plugins/primes",
		"spin":      "../../examples/plugins/spin",
		"probe":     "./testdata/probe",
		"test":      "./testdata/conformance/plugin",
		"confirm":   "./testdata/conformance/plugin",
	} {
		cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w -X main.name="+name, "-trimpath",
			"-o", filepath.Join(built, name, name+".wasm"), source)
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
	}
	return run(), nil
}

// serviceConfig is a service with the plugins of those names. They keep what
// they compiled to, so that only the first test of each plugin pays for it. Neither
// fuel nor time runs out: a call that should have been canceled has to show.
func serviceConfig(names ...string) server.Config {
	cfg := server.Config{CacheDir: plugintest.CacheDir(), Limits: server.Limits{Fuel: 1e12, Timeout: time.Hour}}
	for _, name := range names {
		cfg.Folders = append(cfg.Folders, plugins.Dir(filepath.Join(built, name)))
	}
	return cfg
}

func openService(t *testing.T, names ...string) *server.Service {
	t.Helper()
	return open(t, serviceConfig(names...))
}

// open opens a service that is closed with the test.
func open(t *testing.T, cfg server.Config) *server.Service {
	t.Helper()
	s, err := server.Open(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, s.Problems())
	t.Cleanup(func() { closeNow(t, s) })
	return s
}

// closeNow closes a service without waiting for what still runs.
func closeNow(t *testing.T, s *server.Service) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, s.Close(ctx))
}
