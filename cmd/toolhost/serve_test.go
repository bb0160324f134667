package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/server"
)

// toolhost runs a command in this process.
func toolhost(ctx context.Context, args ...string) (code int, out, errs string) {
	var stdout, stderr testlog.Buffer
	code = run(ctx, args, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// startServer starts a server on a data folder of its own and returns what it
// says. It is ended with the test.
func startServer(t *testing.T, args ...string) *testlog.Buffer {
	t.Helper()
	dir, plugin := t.TempDir(), plugintest.Manifest("echo")
	data := filepath.Join(dir, "data")
	require.NoError(t, os.MkdirAll(data, 0o755)) // as somebody else may have made it
	require.NoError(t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache")))
	plugin.Tools[0].Hints.SupportsBackground = true
	wasm := plugintest.Plugin{Manifest: plugin, Invoke: plugintest.Do().Echo()}.Wasm()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "echo.wasm"), wasm, 0o600))
	t.Setenv("TOOLHOST_DATA", data)
	t.Setenv("TOOLHOST_PLUGINS", dir)
	ctx, cancel := context.WithCancel(context.Background())
	said, ended := new(testlog.Buffer), make(chan int)
	go func() { ended <- run(ctx, append([]string{"serve"}, args...), strings.NewReader(""), said, said) }()
	t.Cleanup(func() {
		cancel()
		require.Equal(t, exitOK, <-ended, said)
		require.NoFileExists(t, socketPath(data))
	})
	require.Eventually(t, func() bool { return strings.Contains(said.String(), "ready: ") }, 2*time.Minute, 5*time.Millisecond)
	return said
}

// Over TCP the token is asked for, and clients that have it are let in.
func TestServeOverTCP(t *testing.T) {
	t.Setenv("TOOLHOST_TOKEN", "s3cret")
	said := startServer(t, "--listen", "127.0.0.1:0")
	match := regexp.MustCompile(`listening on http://(127\.0\.0\.1:\d+)`).FindStringSubmatch(said.String())
	require.NotNil(t, match, said)
	for _, addr := range []string{match[1], "http://" + match[1]} {
		code, out, errs := toolhost(t.Context(), "spawn", "echo", `{"n":1}`, "--wait", "--addr", addr)
		require.Equal(t, exitOK, code, errs)
		require.Equal(t, "{\"n\":1}\n", out)
	}
	t.Setenv("TOOLHOST_TOKEN", "wrong")
	code, _, errs := toolhost(t.Context(), "tasks", "--addr", match[1])
	require.Equal(t, exitDenied, code)
	require.Contains(t, errs, "hint: set TOOLHOST_TOKEN to the token of the server")
	code, out, errs := toolhost(t.Context(), "tasks") // over the socket
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "Background tasks (2 total):")
	require.NotContains(t, said.String(), "s3cret")
}

// Users of an issuer are let in by their access tokens, each to its own runs,
// which the operator sees by their names.
func TestServeUsers(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Authorization"))
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "1"}}})
	}))
	t.Cleanup(issuer.Close)
	token := func(subject string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private}, (&jose.SignerOptions{}).WithType("at+jwt").WithHeader("kid", "1"))
		require.NoError(t, err)
		text, err := jwt.Signed(signer).Claims(map[string]any{
			"iss": issuer.URL, "aud": "https://tools.example/mcp", "sub": subject, "exp": time.Now().Add(time.Hour).Unix(),
		}).Serialize()
		require.NoError(t, err)
		return text
	}
	t.Setenv("TOOLHOST_OAUTH_ISSUER", issuer.URL)
	t.Setenv("TOOLHOST_OAUTH_AUDIENCE", "https://tools.example/mcp")
	t.Setenv("TOOLHOST_OAUTH_JWKS", issuer.URL+"/keys")
	said := startServer(t, "--listen", "127.0.0.1:0")
	match := regexp.MustCompile(`listening on http://(127\.0\.0\.1:\d+)`).FindStringSubmatch(said.String())
	require.NotNil(t, match, said)

	code, _, errs := toolhost(t.Context(), "tasks", "--addr", match[1])
	require.Equal(t, exitDenied, code)
	require.Contains(t, errs, "send an access token of "+issuer.URL)
	ana := token("ana")
	t.Setenv("TOOLHOST_TOKEN", ana)
	code, _, errs = toolhost(t.Context(), "spawn", "echo", `{"n":1}`, "--wait", "--addr", match[1])
	require.Equal(t, exitOK, code, errs)
	t.Setenv("TOOLHOST_TOKEN", token("bo"))
	code, out, errs := toolhost(t.Context(), "tasks", "--addr", match[1])
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "No background tasks.")
	code, out, errs = toolhost(t.Context(), "tasks", "--session", "ana/default") // over the socket
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "Background tasks (1 total):")
	require.NotContains(t, said.String(), ana)
}

// A server has several clients, and keeps some of what they share from each.
func TestServeSharesRuns(t *testing.T) {
	t.Setenv("TOOLHOST_BACKGROUND_PER_HOST", "2")
	startServer(t)
	spin := plugintest.Manifest("spin")
	spin.Tools[0].Hints.SupportsBackground = true
	wasm := plugintest.Plugin{Manifest: spin, Invoke: plugintest.Do().Spin()}.Wasm()
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("TOOLHOST_PLUGINS"), "spin.wasm"), wasm, 0o600))
	require.Eventually(t, func() bool {
		_, out, _ := toolhost(t.Context(), "spawn", "spin", "--session", "ana/1")
		return strings.HasPrefix(out, "bg_")
	}, 2*time.Minute, 5*time.Millisecond)
	code, _, errs := toolhost(t.Context(), "spawn", "spin", "--session", "ana/2")
	require.Equal(t, exitLimit, code)
	require.Contains(t, errs, "your sessions together already have the maximum of 1 background runs")
	code, out, errs := toolhost(t.Context(), "spawn", "echo", "{}", "--wait", "--session", "bo/1")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, "{}\n", out)
	_, out, _ = toolhost(t.Context(), "tasks", "--session", "ana/1")
	code, _, errs = toolhost(t.Context(), "stop", "--force", regexp.MustCompile("bg_[a-z0-9]+").FindString(out))
	require.Equal(t, exitOK, code, errs)
}

// The socket is for this user only, whatever the folder around it is.
func TestSocketIsPrivate(t *testing.T) {
	startServer(t)
	socket := socketPath(os.Getenv("TOOLHOST_DATA"))
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(filepath.Dir(socket))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

// A socket a dead server left is replaced, and the one of a later server is not
// removed by an earlier one that ends.
func TestStaleSocket(t *testing.T) {
	path := socketPath(t.TempDir())
	first, err := listenSocket(path)
	require.NoError(t, err)
	remove := removeSocket(path)
	require.NoError(t, first.Close())
	require.FileExists(t, path, "as after a crash")
	second, err := listenSocket(path)
	require.NoError(t, err)
	defer second.Close()
	require.NoError(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Second))) // made later, whatever the clock's step
	remove()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	removeSocket(path)()
	require.NoFileExists(t, path)
}

// A client that was never answered does not wait for a server.
func TestNoServer(t *testing.T) {
	t.Setenv("TOOLHOST_DATA", t.TempDir())
	id := "bg_" + strings.Repeat("a", 26)
	for _, args := range [][]string{{"tasks"}, {"check", id}, {"wait", id}, {"logs", id}, {"logs", "-f", id}, {"stop", id}, {"spawn", "x"}, {"schedules"}} {
		code, out, errs := toolhost(t.Context(), args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs, "toolhost: hint: start one with toolhost serve, or name one with --addr\n", args)
		require.Empty(t, out)
	}
}

// Each process that speaks MCP has a folder for runs of its own, up to a number
// of them, and takes the first that is free. That of serve stays free.
func TestMCPFolders(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache")))
	a := &app{ui: ui{err: new(testlog.Buffer)}, config: &loadedConfig{config: config{
		plugins: []string{t.TempDir()}, data: data, logLevel: "warn",
	}}}
	var services []*server.Service
	for n := range maxMCP {
		s, folder, done, err := a.openFree(t.Context())
		require.NoError(t, err)
		defer done()
		require.Equal(t, a.config.mcpFolder(n+1), folder)
		require.DirExists(t, folder)
		services = append(services, s)
	}
	_, _, _, err := a.openFree(t.Context())
	var usage *usageError
	require.ErrorAs(t, err, &usage)
	require.EqualError(t, err, "16 processes of toolhost mcp already keep runs in "+data)
	require.NoError(t, services[4].Close(t.Context()))
	_, folder, done, err := a.openFree(t.Context())
	require.NoError(t, err)
	defer done()
	require.Equal(t, a.config.mcpFolder(5), folder)
	_, _, err = a.openKept(t.Context(), folder, nil, false)
	require.ErrorIs(t, err, server.ErrLocked)
	_, _, err = a.openKept(t.Context(), a.config.mcpFolder(1), nil, false)
	require.ErrorContains(t, err, fmt.Sprintf("is used by process %d", os.Getpid()))
	require.NoDirExists(t, filepath.Join(data, "runs"))
}

// onSay runs a function when something is first written to it.
type onSay struct {
	testlog.Buffer
	once sync.Once
	run  func()
}

func (w *onSay) Write(p []byte) (int, error) {
	defer w.once.Do(w.run)
	return w.Buffer.Write(p)
}

// A server that is started while another one ends waits for its folder, and says
// so.
func TestServeWaitsForTheFolder(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache")))
	said := new(onSay)
	a := &app{ui: ui{err: said}, config: &loadedConfig{config: config{
		plugins: []string{t.TempDir()}, data: data, logLevel: "warn",
	}}}
	runs := func() (*server.Service, func(), error) {
		return a.openKept(t.Context(), filepath.Join(data, "runs"), nil, true)
	}
	first, _, err := a.openFreed(t.Context(), runs)
	require.NoError(t, err)
	require.Empty(t, said.String(), "it had nothing to wait for")
	said.run = func() { require.NoError(t, first.Close(t.Context())) }
	second, _, err := a.openFreed(t.Context(), runs)
	require.NoError(t, err)
	require.Equal(t, "toolhost: the data folder is in use: waiting up to 5s for the other process to end\n", said.String(), "the error says which process, if it does not end")
	defer a.closeService(t.Context(), second)

	ctx, cancel := context.WithCancel(t.Context())
	a.err = &onSay{run: cancel}
	_, _, err = a.openFreed(ctx, runs)
	require.ErrorIs(t, err, context.Canceled, "nobody waits for it any more")
}

// A shutdown that takes longer than its drain says what it waits for, and ends.
func TestShutdownThatDoesNotEnd(t *testing.T) {
	for name, test := range map[string]struct {
		ends, again time.Duration // when the shutdown ends, and when there is a second signal; 0: never
		took        time.Duration
		told        int // how often it says what it waits for
		err         string
	}{
		"it ends in time":     {ends: 9 * time.Second, took: 9 * time.Second},
		"it ends late":        {ends: 21 * time.Second, took: 21 * time.Second, told: 1},
		"it never ends":       {took: 10*time.Second + endLimit, told: 7, err: "the shutdown did not end within 55s: it waited for the moon; the next start recovers what was left"},
		"it is ended at once": {again: time.Second, took: time.Second, err: context.Canceled.Error()},
		"it is ended at last": {again: 17 * time.Second, took: 17 * time.Second, told: 1, err: context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := new(testlog.Buffer)
				a := &app{ui: ui{err: said}, config: &loadedConfig{config: config{drain: 10 * time.Second}}}
				ended, again := make(chan error, 1), make(chan os.Signal, 1)
				if test.ends > 0 {
					time.AfterFunc(test.ends, func() { ended <- nil })
				}
				if test.again > 0 {
					time.AfterFunc(test.again, func() { again <- os.Interrupt })
				}
				began := time.Now()
				err := (daemon{app: a}).awaitEnd(ended, again, func() string { return "the moon" })
				require.Equal(t, test.took, time.Since(began))
				require.Equal(t, test.told, strings.Count(said.String(), "s: waiting for the moon\n"), said)
				if test.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, test.err)
				}
			})
		})
	}
}

// What does not end at the end does not hold up the end.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		began := time.Now()
		within(endGrace, func() { <-stuck })
		require.Equal(t, endGrace, time.Since(began))
		within(endGrace, func() {})
		require.Equal(t, endGrace, time.Since(began))
		close(stuck)
	})
}
