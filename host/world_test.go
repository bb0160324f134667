package host_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// sights are what the fixture world tells of what it sees.
type sights struct {
	Args, Env, Map, Root []string
	Now                  []time.Time
	Passed               time.Duration
	Random               []byte
	Error                string
}

func look(t *testing.T, h *host.Host, m *host.Module, req host.Call) (sights, outcome) {
	t.Helper()
	req.Tool, req.Args = "look", []byte(`{"do":"look"}`)
	o := do(context.Background(), h, m, req)
	require.NoError(t, o.err)
	require.Equal(t, abi.Success, o.Kind, o.Error)
	var s sights
	require.NoError(t, json.Unmarshal(o.Value, &s))
	return s, o
}

// TestNothingIsGranted: under the zero policy a call depends on nothing but the
// module and its arguments, to the last unit of fuel.
func TestNothingIsGranted(t *testing.T) {
	t.Setenv("TOOLHOST_TEST_SECRET", "x")
	h := newHost(t, nil)
	m := worldPlugin.module(t, h)
	s, o := look(t, h, m, host.Call{})
	require.Equal(t, []string{"look"}, s.Args)
	require.Empty(t, s.Env)
	require.Empty(t, s.Root)
	require.NotEmpty(t, s.Error, "there is no folder")
	epoch := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, now := range s.Now {
		require.WithinRange(t, now, epoch, epoch.Add(time.Second))
	}
	require.Positive(t, s.Passed)

	for range 3 {
		again, p := look(t, h, m, host.Call{})
		require.Equal(t, s, again)
		require.Equal(t, string(o.Value), string(p.Value))
		require.Equal(t, o.Usage.Fuel, p.Usage.Fuel)
		require.Equal(t, o.Usage.MemoryPeak, p.Usage.MemoryPeak)
		require.Equal(t, o.Usage.OutputBytes, p.Usage.OutputBytes)
	}
}

func TestGrants(t *testing.T) {
	h := newHost(t, nil)
	m := worldPlugin.module(t, h)
	none, _ := look(t, h, m, host.Call{})
	t.Run("clock", func(t *testing.T) {
		before := time.Now()
		s, _ := look(t, h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
		require.WithinRange(t, s.Now[0], before.Round(0), time.Now())
	})
	t.Run("random", func(t *testing.T) {
		s, _ := look(t, h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Random: true}}})
		require.NotEqual(t, none.Random, s.Random)
		again, _ := look(t, h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Random: true}}})
		require.NotEqual(t, s.Random, again.Random)
	})
	t.Run("env", func(t *testing.T) {
		s, _ := look(t, h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Env: map[string]string{"B": "2=2", "A": "", "C": "größer"}}}})
		require.Equal(t, []string{"A=", "B=2=2", "C=größer"}, s.Env)
	})
}

// TestReactorSeesNothing: what a reactor learns of its world without an SDK.
func TestReactorSeesNothing(t *testing.T) {
	o := run(t, guest{invoke: seq(
		drop(wasi(fnArgs, 512, 516)), tell(load(i32(512))), drop(wasi(fnEnv, 512, 516)), tell(load(i32(512))),
		tell(wasi(fnPrestat, 3, 512)), store(16, i32(512)), store(20, i32(8)), tell(wasi(fnFDRead, 0, 16, 1, 24)), tell(load(i32(24))), i32(0),
	)}, host.Call{Args: []byte(`{"not":"for stdin"}`), Traits: host.Traits{Argv: abi.Argv{Flags: true}}})
	require.NoError(t, o.err)
	require.Equal(t, []int32{0, 0, 8, 0, 0}, o.codes(), "no args, no env, EBADF, an empty stdin")

	random := guest{invoke: seq(drop(wasi(fnRandom, 0, 32)), drop(write(abi.StreamOutput, 0, 32)), i32(0))}
	first, second := run(t, random, host.Call{}), run(t, random, host.Call{})
	require.Equal(t, first.stdout, second.stdout)
	require.NotEqual(t, strings.Repeat("\x00", 32), first.stdout)
	granted := run(t, random, host.Call{Policy: host.Policy{Grant: host.Grant{Random: true}}})
	require.NotEqual(t, first.stdout, granted.stdout)

	clock := guest{invoke: seq(i32(1), i64(1), i32(8), call(fnClock), drop(nil), drop(write(abi.StreamOutput, 8, 8)), i32(0))}
	first, second = run(t, clock, host.Call{}), run(t, clock, host.Call{})
	require.Equal(t, first.stdout, second.stdout)
	require.EqualValues(t, time.Microsecond, binary.LittleEndian.Uint64([]byte(first.stdout)))
}

// Without a clock sleeping takes no time, and a plugin cannot tell.
func TestSleepWithoutClock(t *testing.T) {
	h := newHost(t, nil)
	o := do(context.Background(), h, worldPlugin.module(t, h), host.Call{Args: []byte(`{"do":"sleep","n":10000}`)})
	require.NoError(t, o.err)
	require.JSONEq(t, `true`, string(o.Value), "it has slept ten thousand hours")
}

// TestReadonlyHint: an author reads why a tool with the hint cannot write.
func TestReadonlyHint(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, plugintest.Plugin{Invoke: plugintest.Do().Create("x").Say(abi.StreamError, "x").Return(1)}.Wasm())
	for name, c := range map[string]struct {
		readonly bool
		mode     abi.FileMode
		want     string
	}{
		"the hint":       {true, abi.FileRead, "x (the tool has the hint readonly, so its folders are mounted read-only)"},
		"no hint":        {false, abi.FileRead, "x"},
		"it can write":   {true, abi.FileWrite, "x"},
		"nothing is its": {true, abi.FileRead, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			req := host.Call{Traits: host.Traits{Readonly: c.readonly}}
			if name != "nothing is its" {
				req.Policy.Files = []host.Mount{{Dir: t.TempDir(), Path: "/work", Mode: c.mode}}
			}
			o := do(context.Background(), h, m, req)
			require.NoError(t, o.err)
			require.Equal(t, abi.ToolError, o.Kind)
			require.Equal(t, c.want, o.Error)
		})
	}
}

func TestFiles(t *testing.T) {
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	h := newHost(t, nil)
	m := worldPlugin.module(t, h)
	steps := []struct{ step, readOnly, writable string }{
		{`{"do":"read","path":"/work/a.txt"}`, "alpha", "alpha"},
		{`{"do":"list","path":"/work"}`, "a.txt link ", "a.txt link "},
		{`{"do":"write","path":"/work/b.txt","text":"beta"}`, "open /work/b.txt: Read-only file system", ""},
		{`{"do":"mkdir","path":"/work/sub"}`, "mkdir /work/sub: Read-only file system", ""},
		{`{"do":"rename","path":"/work/a.txt","to":"/work/c.txt"}`, "rename /work/a.txt /work/c.txt: Read-only file system", ""},
		{`{"do":"remove","path":"/work/c.txt"}`, "remove /work/c.txt: Read-only file system", ""},
		{`{"do":"read","path":"/work/link"}`, "open /work/link: Operation not permitted", "open /work/link: Operation not permitted"},
		{`{"do":"link","path":"/work/l","to":"/etc/passwd"}`, "symlink /etc/passwd /work/l: Read-only file system", "symlink /etc/passwd /work/l: Operation not permitted"},
		{`{"do":"read","path":"/work/../secret"}`, "open /work/../secret: Bad file number", "open /work/../secret: Bad file number"},
		{`{"do":"read","path":"/etc/passwd"}`, "open /etc/passwd: Bad file number", "open /etc/passwd: Bad file number"},
	}
	all := make([]string, len(steps))
	for i, s := range steps {
		all[i] = s.step
	}
	for _, mode := range []abi.FileMode{"", abi.FileRead, abi.FileWrite} {
		writable := mode == abi.FileWrite
		t.Run(fmt.Sprintf("mode %q", mode), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("alpha"), 0o600))
			require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))
			o := do(context.Background(), h, m, host.Call{
				Args:   []byte(`{"do":"steps","steps":[` + strings.Join(all, ",") + `]}`),
				Policy: host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: dir, Path: "/work", Mode: mode}}}},
			})
			require.NoError(t, o.err)
			var said []string
			require.NoError(t, json.Unmarshal(o.Value, &said), string(o.Value))
			require.Len(t, said, len(steps))
			for i, s := range steps {
				want := s.readOnly
				if writable {
					want = s.writable
				}
				require.Equal(t, want, said[i], s.step)
			}
			var left []string
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if !writable {
				require.Equal(t, []string{"a.txt", "link"}, left)
				return
			}
			require.Equal(t, []string{"b.txt", "link", "sub"}, left)
			data, err := os.ReadFile(filepath.Join(dir, "b.txt"))
			require.NoError(t, err)
			require.Equal(t, "beta", string(data))
		})
	}
}

// Paths of the host are for the operator only: the agent does not see them.
func TestAFolderThatIsNotThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nowhere")
	o := run(t, guest{}, host.Call{Policy: host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: dir, Path: "/work"}}}}})
	require.ErrorIs(t, o.err, host.ErrDenied)
	require.ErrorIs(t, o.err, os.ErrNotExist)
	require.ErrorContains(t, o.err, dir)
	require.Equal(t, abi.ToolError, o.Kind)
	require.Equal(t, "denied: the folder granted as /work cannot be opened", o.Error)
}

func TestCommands(t *testing.T) {
	h := newHost(t, nil)
	m := worldPlugin.module(t, h)
	for name, c := range map[string]struct {
		args string
		want abi.Result
	}{
		"JSON":           {`{"do":"exit","text":" {\"a\": [1]}\n"}`, abi.Result{Kind: abi.Success, Value: []byte(`{"a":[1]}`)}},
		"text":           {`{"do":"exit","text":"two\nlines\n\n"}`, abi.Result{Kind: abi.Success, Value: []byte(`"two\nlines"`)}},
		"two values":     {`{"do":"exit","text":"1\n2\n"}`, abi.Result{Kind: abi.Success, Value: []byte(`"1\n2"`)}},
		"no output":      {`{"do":"exit"}`, abi.Result{Kind: abi.Success, Value: []byte(`""`)}},
		"a failure":      {`{"do":"exit","text":"{}","n":7}`, abi.Result{Kind: abi.ToolError, Error: "exited with code 7", ExitCode: new(7)}},
		"last words":     {`{"do":"err","text":"oh no\n","n":1}`, abi.Result{Kind: abi.ToolError, Error: "exited with code 1: oh no", ExitCode: new(1)}},
		"many words":     {`{"do":"err","text":"0123456789abcde\n","n":1000}`, abi.Result{Kind: abi.ToolError, Error: "exited with code 1: " + strings.TrimSpace(strings.Repeat("0123456789abcde\n", 128)), ExitCode: new(1)}},
		"no arguments":   {`{}`, abi.Result{Kind: abi.Success, Value: []byte(`""`)}},
		"what it wanted": {`[1]`, abi.Result{Kind: abi.ToolError, Error: "exited with code 2: json: cannot unmarshal array into Go value of type main.args", ExitCode: new(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := do(context.Background(), h, m, host.Call{Args: json.RawMessage(c.args)})
			require.NoError(t, o.err)
			o.Usage = abi.Usage{}
			require.Equal(t, c.want, o.Result)
		})
	}
}

// TestFlags: arguments as flags are what the model makes them, and no more than
// arguments.
func TestFlags(t *testing.T) {
	h := newHost(t, nil)
	m := commandPlugin.module(t, h)
	for args, want := range map[string]string{
		`{}`: "", `[]`: "", `null`: "", `{`: "",
		`{"b":1,"a":"x y"}`:                 "--a|x y|--b|1",
		`{"on":true,"off":false,"no":null}`: "--on",
		`{"n":-1.50e2,"o":{"k": [1, 2]}}`:   `--n|-1.50e2|--o|{"k": [1, 2]}`,
		`{"s":"","q":"\"'$(x)"}`:            `--q|"'$(x)|--s|`,
		`{"a\u0000b":"c\u0000d"}`:           "--ab|cd",
	} {
		o := do(context.Background(), h, m, host.Call{Traits: host.Traits{Plugin: "command", Argv: abi.Argv{Flags: true}}, Tool: "words", Args: []byte(args)})
		require.NoError(t, o.err, args)
		require.Equal(t, want+"\n", o.stdout, args)
	}
	o := do(context.Background(), h, m, host.Call{Traits: host.Traits{Plugin: "command"}, Tool: "words", Args: []byte(`{"a":1}`)})
	require.Equal(t, "\n", o.stdout, "no flags unless the manifest asks")
}

// The text of a log line is the plugin's, its level and its place are the
// host's.
func TestLogs(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	text := "caf\xe9\n{\"level\":\"FAKE\"}"
	n := int64(len(text))
	m := compile(t, h, guest{data: text, invoke: seq(
		drop(write(abi.StreamDebug, dataAt, n)), drop(write(abi.StreamInfo, dataAt, n)), drop(write(abi.StreamWarn, dataAt, n)), drop(write(abi.StreamErrorLog, dataAt, n)), i32(0),
	)}.wasm())
	o := do(context.Background(), h, m, host.Call{ID: "c1"})
	require.NoError(t, o.err)
	require.Empty(t, o.stdout+o.stderr)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 4)
	for i, level := range []string{"DEBUG", "INFO", "WARN", "ERROR"} {
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &line))
		delete(line, "time")
		require.Equal(t, map[string]any{"level": level, "msg": "guest | caf\uFFFD\n{\"level\":\"FAKE\"}", "plugin": "guest", "tool": "tool", "call": "c1"}, line)
	}
}

// TestContext: a plugin reads the facts of its call.
func TestContext(t *testing.T) {
	o := run(t, guest{invoke: seq(set(0, read(abi.FieldContext, dataAt, 1024)),
		i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite), drop(nil), i32(0))},
		host.Call{ID: "c1", Session: "s1", Locale: "de-CH", Policy: host.Policy{Timeout: time.Hour, Fuel: 5000, Grant: host.Grant{Config: map[string]string{"k": "v"}}}})
	require.NoError(t, o.err)
	require.JSONEq(t, `{"call_id":"c1","session":"s1","attempt":1,"timeout_ms":3600000,"fuel":5000,"locale":"de-CH","config":{"k":"v"}}`, string(o.Value))
}
