package host_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// temp is a folder for the plugins of this test binary.
var temp string

func TestMain(m *testing.M) {
	host.CompilerMain()
	var err error
	if temp, err = os.MkdirTemp("", "toolhost-host-test-*"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	_ = os.RemoveAll(temp)
	os.Exit(code)
}

// newHost returns a host that ends with the test. The hosts of all tests share
// their compiled code.
func newHost(t testing.TB, logger *slog.Logger) *host.Host {
	t.Helper()
	return hostWith(t, host.Config{CacheDir: plugintest.CacheDir(), Logger: logger})
}

func compile(t testing.TB, h *host.Host, wasm []byte) *host.Module {
	t.Helper()
	m, err := h.Compile(context.Background(), wasm)
	require.NoError(t, err)
	return m
}

// outcome is all that comes of a call.
type outcome struct {
	abi.Result
	err            error
	stdout, stderr string
	progress       []host.Progress
}

// codes are the numbers that the guest reported.
func (o outcome) codes() []int32 {
	codes := make([]int32, len(o.stdout)/4)
	for i := range codes {
		codes[i] = int32(binary.LittleEndian.Uint32([]byte(o.stdout[4*i:])))
	}
	return codes
}

// do makes a call, which has an hour unless req says otherwise, and returns what
// came of it.
func do(ctx context.Context, h *host.Host, m *host.Module, req host.Call) outcome {
	req.Policy.Timeout = cmp.Or(req.Policy.Timeout, time.Hour)
	var o outcome
	var stdout, stderr bytes.Buffer
	if req.Tool == "" {
		req.Plugin, req.Tool = "guest", "tool"
	}
	if req.Stdout == nil {
		req.Stdout = &stdout
	}
	if req.Stderr == nil {
		req.Stderr = &stderr
	}
	forward := req.Progress
	req.Progress = func(p host.Progress) {
		o.progress = append(o.progress, p)
		if forward != nil {
			forward(p)
		}
	}
	o.Result, o.err = h.Call(ctx, m, req)
	o.stdout, o.stderr = stdout.String(), stderr.String()
	return o
}

// run compiles a hand-made guest and calls it once.
func run(t testing.TB, g guest, req host.Call) outcome {
	t.Helper()
	h := newHost(t, nil)
	return do(context.Background(), h, compile(t, h, g.wasm()), req)
}

// fixture is a plugin these tests build from its source.
type fixture struct {
	dir     string
	command bool
}

var (
	vectorsPlugin = fixture{dir: "../guest/testdata/vectors"}
	commandPlugin = fixture{dir: "../guest/testdata/command", command: true}
	worldPlugin   = fixture{dir: "./testdata/world", command: true}
	directPlugin  = fixture{dir: "./testdata/direct"}
	wordcount     = fixture{dir: "../examples/plugins/wordcount"}
)

// build compiles the fixture to WebAssembly and returns its file.
func (f fixture) build() (string, error) {
	file := filepath.Join(temp, filepath.Base(f.dir)+".wasm")
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", file}
	if !f.command {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.Command("go", append(args, f.dir)...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-mod=readonly")
	cmd.Stderr = os.Stderr
	return file, cmd.Run()
}

// buildAll builds the fixtures of the tests, once.
var buildAll = sync.OnceValue(func() error {
	for _, f := range []fixture{vectorsPlugin, commandPlugin, worldPlugin, directPlugin} {
		if _, err := f.build(); err != nil {
			return err
		}
	}
	return nil
})

// wasm returns the fixture.
func (f fixture) wasm(t testing.TB) []byte {
	t.Helper()
	require.NoError(t, buildAll())
	wasm, err := os.ReadFile(filepath.Join(temp, filepath.Base(f.dir)+".wasm"))
	require.NoError(t, err)
	return wasm
}

// module returns the compiled fixture.
func (f fixture) module(t testing.TB, h *host.Host) *host.Module {
	t.Helper()
	return compile(t, h, f.wasm(t))
}
