package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
)

const (
	stretchFile = "TOOLHOST_STRETCH" // set: this process does one stretch of a call
	rotateOver  = "TOOLHOST_ROTATE"  // processors, in turn, with a process at each wait
)

// processors are those that the programs can be rotated over, and what runs their
// processes where they are foreign.
var processors = map[string][]string{
	"native": {},
	"386":    {},
	"arm64":  {"qemu-aarch64"},
	"s390x":  {"qemu-s390x"},
}

// A stretch is what one process does of a call: from a wait to the next.
type stretch struct {
	Wasm      string // file
	Interpret bool
	Tool      string
	Args      json.RawMessage
	State     []byte    // of the wait
	Until     time.Time // it is

	Result         json.RawMessage
	Failed         string
	Stdout, Stderr string
	Fuel           int64 // used by the whole call
}

// walk continues a call until its next wait. It has a clock of its own, which begins
// when the wait is over, so that nothing depends on how fast the process is.
func (s stretch) walk(t *testing.T, once bool) stretch {
	wasm, err := os.ReadFile(s.Wasm)
	require.NoError(t, err)

	synctest.Test(t, func(t *testing.T) {
		if !s.Until.IsZero() {
			time.Sleep(time.Until(s.Until))
		}
		h := newHost(t, nil)
		m, err := h.CompileWith(t.Context(), wasm, host.CompileOptions{Interpret: s.Interpret})
		require.NoError(t, err)

		call := host.Call{
			ID: "call_1", Tool: s.Tool, Args: s.Args, Continue: s.State, Traits: host.Traits{Plugin: "plugin"},
			Policy: host.Policy{Memory: 256 << 20, Grant: host.Grant{Clock: true}},
		}
		s.State = nil
		if once {
			call.Suspend = &keeper{keep: func(k host.SavedState) error {
				s.State, s.Until = k.State, k.Until
				return nil
			}}
		}
		o := do(context.Background(), h, m, call)
		if once && errors.Is(o.err, host.ErrSuspended) {
			o.err = nil
		} else {
			s.State = nil
		}
		if o.err != nil {
			s.Failed = o.err.Error()
		}
		s.Result, s.Stdout, s.Stderr, s.Fuel = o.Value, s.Stdout+o.stdout, s.Stderr+o.stderr, s.Fuel+o.Usage.Fuel
	})
	return s
}

// TestStretch is a process of TestProcessesThatWait.
func TestStretch(t *testing.T) {
	file := os.Getenv(stretchFile)
	if file == "" {
		t.Skip("a process of TestProcessesThatWait")
	}
	var s stretch
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &s))

	data, err = json.Marshal(s.walk(t, true))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, data, 0o600))
}

// raced: the race detector is on.
var raced bool

// TestProcessesThatWait: programs have the same result, output and fuel when they continue
// in another process at each wait, in turn compiled and interpreted, and on the processors
// that TOOLHOST_ROTATE names ("native,386,arm64,s390x"). Without it there are fewer programs,
// and only some of the waits are between processes.
func TestProcessesThatWait(t *testing.T) {
	fulltest.Only(t, "starts a process for each wait")
	if os.Getenv(stretchFile) != "" {
		t.Skip("this is a process of it")
	}
	if raced {
		t.Skip("TestScriptThatWaits and TestGoroutinesThatWait share as much, and take less")
	}
	fixture, err := buildWaiting()
	require.NoError(t, err)
	scripts := filepath.Join(t.TempDir(), "exec.wasm")
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(scripts, wasm, 0o600))
	source, err := os.ReadFile("testdata/waits.js")
	require.NoError(t, err)
	code, err := json.Marshal(map[string]string{"code": string(source)})
	require.NoError(t, err)

	every, commands := 10, [][]string{{os.Args[0]}}
	if names := os.Getenv(rotateOver); names != "" {
		every, commands = 1, rotation(t, strings.Split(names, ","))
	}
	programs := []struct {
		name  string
		begin stretch
		waits int // more than so many
	}{
		{"script", stretch{Wasm: scripts, Tool: "exec", Args: code}, 50},
		{"locks", stretch{Wasm: fixture, Tool: "waiting", Args: []byte(`{"case":"locks"}`)}, 10},
		{"ticker", stretch{Wasm: fixture, Tool: "waiting", Args: []byte(`{"case":"ticker"}`)}, 4},
		{"timeouts", stretch{Wasm: fixture, Tool: "waiting", Args: []byte(`{"case":"timeouts"}`)}, 3},
		{"select", stretch{Wasm: fixture, Tool: "waiting", Args: []byte(`{"case":"select"}`)}, 2},
		{"collector", stretch{Wasm: fixture, Tool: "waiting", Args: []byte(`{"case":"collector"}`)}, 5},
		{"pipeline", stretch{Wasm: fixture, Tool: "waiting", Args: []byte(`{"case":"pipeline","n":60}`)}, 50},
	}
	if every > 1 {
		programs = programs[:2]
	}
	for _, c := range programs {
		t.Run(c.name, func(t *testing.T) {
			want := c.begin.walk(t, false)
			require.Empty(t, want.Failed, want.Stderr)

			s, waits, rotated := c.begin, 0, 0
			for more := true; more; more = s.State != nil {
				s.Interpret = waits%7 == 3
				if waits%every == every/2 {
					s = s.elsewhere(t, commands[rotated%len(commands)])
					rotated++
				} else {
					s = s.walk(t, true)
				}
				require.Empty(t, s.Failed, "after %d waits", waits)
				waits++
			}

			t.Logf("%d stretches, %d of them in processes of their own; %d units of fuel", waits, rotated, s.Fuel)
			require.Greater(t, waits, c.waits)
			require.JSONEq(t, string(want.Result), string(s.Result))
			require.Equal(t, want.Stdout, s.Stdout)
			require.Equal(t, want.Stderr, s.Stderr)
			require.Equal(t, want.Fuel, s.Fuel)
		})
	}
}

// elsewhere walks in a process of its own.
func (s stretch) elsewhere(t *testing.T, command []string) stretch {
	file := filepath.Join(t.TempDir(), "stretch.json")
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, data, 0o600))

	arguments := append(slices.Clone(command[1:]), "-test.run=^TestStretch$", "-test.timeout=10m")
	cmd := exec.Command(command[0], arguments...)
	cmd.Env = append(os.Environ(), stretchFile+"="+file)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)

	data, err = os.ReadFile(file)
	require.NoError(t, err)
	var after stretch
	require.NoError(t, json.Unmarshal(data, &after))
	return after
}

// rotation builds this test for processors, and returns the commands that run it. Those
// that cannot be had here are left out, and named.
func rotation(t *testing.T, names []string) (commands [][]string) {
	for _, name := range names {
		command, known := processors[name]
		require.True(t, known, "%s: %q is not a processor", rotateOver, name)
		switch {
		case name == "native":
			commands = append(commands, []string{os.Args[0]})
			continue
		case runtime.GOOS != "linux" || runtime.GOARCH != "amd64":
			t.Logf("NOT TESTED: %s, on %s/%s", name, runtime.GOOS, runtime.GOARCH)
			continue
		case len(command) > 0:
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Logf("NOT TESTED: %s: %s is not installed", name, command[0])
				continue
			}
		}
		file := filepath.Join(temp, "host-"+name+".test")
		build := exec.Command("go", "test", "-c", "-o", file, ".")
		build.Env = append(os.Environ(), "GOARCH="+name, "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		commands = append(commands, append(slices.Clone(command), file))
	}
	require.NotEmpty(t, commands)
	return commands
}
