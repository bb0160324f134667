package python_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/python"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// TestDigest: the runtime is the one whose digest build.sh has noted.
func TestDigest(t *testing.T) {
	sums, err := os.ReadFile("python.wasm.gz.sha256")
	require.NoError(t, err)
	wasm, err := os.ReadFile("python.wasm.gz")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(sums), fmt.Sprintf("%x  python.wasm.gz\n", sha256.Sum256(wasm))))
	require.Equal(t, "\x00asm", string(python.Runtime()[:4]))
}

// world is a host with what the tests grant.
type world struct {
	*host.Host
	log *buffer
}

type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func newWorld(t testing.TB) world {
	log := &buffer{}
	h, err := host.New(context.Background(), host.Config{CacheDir: plugintest.CacheDir(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	return world{h, log}
}

// load compiles the plugin of a project.
func (w world) load(t testing.TB, project fs.FS) (*host.Module, *abi.Manifest) {
	t.Helper()
	wasm, err := python.Plugin(project)
	require.NoError(t, err)
	m, err := w.Compile(context.Background(), wasm)
	require.NoError(t, err)
	data, err := w.Describe(context.Background(), wasm)
	require.NoError(t, err)
	manifest, err := abi.DecodeManifest(data)
	require.NoError(t, err)
	require.Equal(t, host.Reset, m.Isolation.Mode, m.Isolation)
	return m, manifest
}

// outcome is what comes of a call.
type outcome struct {
	abi.Result
	stdout, stderr string
	progress       []host.Progress
}

func (w world) call(t testing.TB, m *host.Module, tool, args string, change ...func(*host.Call)) (o outcome) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := host.Call{
		Traits: host.Traits{Plugin: "python"}, Tool: tool, Args: []byte(args),
		Observers: host.Observers{Stdout: &stdout, Stderr: &stderr, Progress: func(p host.Progress) { o.progress = append(o.progress, p) }},
	}
	for _, f := range change {
		f(&c)
	}
	r, err := w.Call(context.Background(), m, c)
	require.NoError(t, err)
	o.Result, o.stdout, o.stderr = r, stdout.String(), stderr.String()
	return o
}

func clock(c *host.Call) { c.Policy.Clock = true }

// TestExamples: the seven examples do what they say.
func TestExamples(t *testing.T) {
	w := newWorld(t)
	load := func(name string) *host.Module {
		m, manifest := w.load(t, os.DirFS("examples/"+name))
		require.Equal(t, name, manifest.Name)
		return m
	}

	t.Run("arguments", func(t *testing.T) {
		m := load("arguments")
		o := w.call(t, m, "plan", `{"guests":[{"name":"Ana","diet":"vegan"},{"name":"Bo"}],"meal":"dinner","courses":2,"note":"no nuts"}`)
		require.Equal(t, `"dinner for 2 in 2 courses, vegan for Ana (no nuts)"`, string(o.Value), o.Error)
	})
	t.Run("result", func(t *testing.T) {
		o := w.call(t, load("result"), "summarize", `{"numbers":[1,2,6]}`)
		require.JSONEq(t, `{"count":3,"mean":3,"median":2}`, string(o.Value), o.Error)
	})
	t.Run("error", func(t *testing.T) {
		m := load("error")
		o := w.call(t, m, "capital", `{"country":"Peru"}`)
		require.Equal(t, abi.ToolError, o.Kind)
		require.Equal(t, "no capital of Peru: there are France, Japan", o.Error)
		require.NotContains(t, w.log.String(), "Peru", "a tool error is nothing for the operator")

		o = w.call(t, m, "ratio", `{"a":1,"b":0}`)
		require.Equal(t, abi.ToolError, o.Kind)
		require.Equal(t, "ZeroDivisionError: float division by zero", o.Error)
		require.Contains(t, w.log.String(), `File \"tool.py\", line 21, in ratio\n    return a / b\n           ~~^~~\nZeroDivisionError`)
		require.NotContains(t, w.log.String(), "toolhost>", "the frames are the author's")
	})
	t.Run("progress", func(t *testing.T) {
		o := w.call(t, load("progress"), "primes", `{"limit":25}`)
		require.Equal(t, "[2,3,5,7,11,13,17,19,23]", string(o.Value), o.Error)
		require.Equal(t, []host.Progress{{Done: 10, Total: 25, Message: "4 primes"}, {Done: 20, Total: 25, Message: "8 primes"}}, o.progress)
		require.True(t, strings.HasPrefix(o.stdout, "found 2\nfound 3\n"), o.stdout)
	})
	t.Run("hostcall", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "[%s]", r.URL.RequestURI()) }))
		defer server.Close()
		o := w.call(t, load("hostcall"), "visit", `{"url":"`+server.URL+`/a"}`, func(c *host.Call) {
			c.Policy.KV.Mode = abi.StoreWrite
			c.Policy.HTTP = []host.HTTPRule{{URL: server.URL + "/*", Private: true}}
			c.KV = oneValue{}
		})
		require.Equal(t, `"visit 1: [/a?visit=1] [/a]"`, string(o.Value), o.Error)
	})
	t.Run("image", func(t *testing.T) {
		o := w.call(t, load("image"), "swatch", `{"red":255,"green":0,"blue":127}`)
		require.Equal(t, `"#ff007f"`, string(o.Value), o.Error)
		require.Len(t, o.Content, 1)
		require.Equal(t, "image/png", o.Content[0].MIMEType)
	})
	t.Run("wait", func(t *testing.T) {
		o := w.call(t, load("wait"), "remind", `{"texts":["a","b"],"seconds":0.01}`, clock)
		require.Equal(t, `["a","b"]`, string(o.Value), o.Error)
		require.Len(t, o.progress, 2)
	})
}

// oneValue is a key-value store that keeps nothing.
type oneValue struct{ host.Values }

func (oneValue) Get(context.Context, string) (host.Value, error) { return host.Value{}, nil }
func (oneValue) Set(context.Context, string, json.RawMessage, int64, time.Duration) (int64, error) {
	return 1, nil
}

// TestSDK: what the examples do not show.
func TestSDK(t *testing.T) {
	w := newWorld(t)
	m, manifest := w.load(t, os.DirFS("testdata/sdk"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			http.NotFound(w, r)
		case "/redirect":
			http.Redirect(w, r, "/moved", http.StatusFound)
		default:
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode([]string{r.Method, r.Header.Get("X-Test"), r.Header.Get("Content-Type"), string(body)})
		}
	}))
	defer server.Close()

	tools := func(c *host.Call) {
		c.Policy.Tools = []string{"double"}
		c.CallTool = func(_ context.Context, call host.ToolCall) (abi.Result, error) {
			var args struct{ N int }
			err := json.Unmarshal(call.Args, &args)
			value, _ := json.Marshal(2 * args.N)
			return abi.Result{Kind: abi.Success, Value: value}, err
		}
	}
	for _, c := range []struct {
		tool, args, want, err string
		change                func(*host.Call)
	}{
		{tool: "types", args: `{"size":2,"shape":{"path":{"points":[{"x":1},{"x":2,"y":3}]},"tags":["t"]},"pair":[1,"b"],"when":"2026-02-03","mixed":{"x":5},"names":["n"],"table":{"k":{"x":1,"y":2}}}`,
			want: `["<Size.LARGE: 2>","Shape(path={'points': [Point(x=1.0, y=0), Point(x=2.0, y=3.0)]}, tags={'t'})","(1, 'b')","datetime.date(2026, 2, 3)","Point(x=5.0, y=0)","['n']","2","7","{'k': Point(x=1.0, y=2.0)}","'a'"]`},
		{tool: "nulls", args: `{}`, want: `null`},
		{tool: "nans", args: `{}`, err: "ValueError: Out of range float values are not JSON compliant: nan"},
		{tool: "odd", args: `{}`, err: "TypeError: a result cannot have a value of type object"},
		{tool: "chained", args: `{"text":"x"}`, err: "ValueError: not\nfound"},
		{tool: "cleanup", args: `{}`, want: `["cleaned","timeout","cleanup"]`, change: clock},
		{tool: "cleanup", args: `{}`, want: `["cleaned","timeout","cleanup"]`}, // time only moves
		{tool: "together", args: `{}`, want: `[2,4,"denied"]`, change: tools},
		{tool: "use", args: `{}`, want: `6`, change: tools},
		{tool: "loop", args: `{}`, want: `5`, change: clock},
		{tool: "loop", args: `{}`, want: `5`},
		{tool: "slept", args: `{}`, want: `true`, change: clock},
		{tool: "slept", args: `{}`, err: "HostError: sleep needs the clock, which is not granted to this plugin: have the operator grant it, or name it in the plugin's needs"},
		{tool: "platform", args: `{}`, want: `["wasi",[3,13],"cpython-313-wasm32-wasi",true]`},
		{tool: "question", args: `{}`, want: `[7,"Point(x=1.0, y=2.0)",null]`, change: func(c *host.Call) {
			c.Policy.Ask = true
			c.Ask = func(_ context.Context, q abi.Questions) (abi.Answers, error) {
				answer := map[string]abi.Answer{
					"How many?": {Action: abi.AnswerAccept, Content: []byte(`{"answer":7}`)},
					"Where?":    {Action: abi.AnswerAccept, Content: []byte(`{"x":1,"y":2}`)},
					"No?":       {Action: abi.AnswerDecline},
				}[q.Questions["answer"].Message]
				return abi.Answers{Answers: map[string]abi.Answer{"answer": answer}}, nil
			}
		}},
		{tool: "fetch", args: `{"url":"` + server.URL + `/"}`,
			want: `[200,["POST","yes","application/json","{\"a\": 1}"],[200,"application/json","[\"POST\",\"urllib\",\"application/x-www-form-urlencoded\",\"a=b\"]\n"],404,"denied","moved"]`,
			change: func(c *host.Call) {
				c.Policy.HTTP = []host.HTTPRule{{URL: server.URL + "/*", Methods: []string{"*"}, Private: true}}
			}},
	} {
		t.Run(c.tool, func(t *testing.T) {
			var change []func(*host.Call)
			if c.change != nil {
				change = append(change, c.change)
			}
			o := w.call(t, m, c.tool, c.args, change...)
			if c.err != "" {
				require.Equal(t, abi.ToolError, o.Kind, string(o.Value))
				require.Equal(t, c.err, o.Error)
				return
			}
			require.Equal(t, abi.Success, o.Kind, "%s %s", o.Error, w.log.String())
			require.JSONEq(t, c.want, string(o.Value))
		})
	}

	o := w.call(t, m, "connect", `{}`)
	require.Equal(t, &abi.Connection{Provider: "github", SetupURL: "https://example.com/connect"}, o.Connection)
	o = w.call(t, m, "quit", `{"code":3}`)
	require.Equal(t, "bye\n", o.stdout)
	require.NotEqual(t, abi.Success, o.Kind)
	require.Contains(t, w.log.String(), "direct cause", "the whole chain of exceptions is logged")

	random := func(c *host.Call) { c.Policy.Random = true }
	first, second := w.call(t, m, "chance", `{}`, random), w.call(t, m, "chance", `{}`, random)
	require.NotEqual(t, string(first.Value), string(second.Value), "calls that begin from one snapshot draw different numbers")

	require.Equal(t, "1.2.3", manifest.Version)
	require.True(t, manifest.Needs.Clock)
	types := manifest.Tools[0]
	require.Equal(t, "Shows what it gets. It tells the types too.", types.Description)
	require.JSONEq(t, `{"type":"object","additionalProperties":false,
		"required":["size","shape","pair","when","mixed","names"],
		"properties":{
			"size":{"type":"integer","enum":[1,2],"description":"how large"},
			"shape":{"anyOf":[{"type":"object","additionalProperties":false,"required":["path"],"properties":{
				"path":{"type":"object","additionalProperties":false,"required":["points"],"properties":{
					"points":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["x"],"properties":{"x":{"type":"number"},"y":{"type":"number","default":0}}}},
					"closed":{"type":"boolean"}}},
				"tags":{"type":"array","uniqueItems":true,"items":{"type":"string"}}}},{"type":"null"}]},
			"pair":{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"minItems":2,"maxItems":2,"description":"two things"},
			"when":{"type":"string","format":"date"},
			"mixed":{"anyOf":[{"type":"integer"},{"type":"object","additionalProperties":false,"required":["x"],"properties":{"x":{"type":"number"},"y":{"type":"number","default":0}}},
				{"type":"array","items":{"type":"object","additionalProperties":false,"required":["x"],"properties":{"x":{"type":"number"},"y":{"type":"number","default":0}}}}]},
			"names":{"type":"array","items":{"type":"string"},"minItems":1},
			"count":{"type":"integer","minimum":2,"description":"how many","default":2},
			"limit":{"type":"integer","maximum":9,"description":"at most","default":7},
			"table":{"anyOf":[{"type":"object","additionalProperties":{"type":"object","additionalProperties":false,"required":["x"],"properties":{"x":{"type":"number"},"y":{"type":"number","default":0}}}},{"type":"null"}]},
			"mode":{"enum":["a",1],"default":"a"}}}`, string(types.InputSchema))
}

// TestMistakes: what an author gets wrong is named when the plugin is described.
func TestMistakes(t *testing.T) {
	fulltest.Only(t, "takes ten seconds")
	w := newWorld(t)
	begin := "from toolhost import tool\n"
	for source, want := range map[string]string{
		"def f(:\n":                          "SyntaxError: invalid syntax",
		"import numpy\n":                     "ModuleNotFoundError: No module named 'numpy'",
		"@tool\ndef f(x: complex): 'F.'\n":   "TypeError: tool f, parameter x: no JSON Schema for complex",
		"@tool(readnly=True)\ndef f(): ''\n": "TypeError: @tool does not know readnly: it knows ",
		"@tool\ndef f(*a): 'F.'\n":           "TypeError: tool f: parameter a has no name that JSON could give",
		"1/0\n":                              `File "tool.py", line 2, in <module>`,
	} {
		wasm, err := python.Plugin(fstest.MapFS{"tool.py": {Data: []byte(begin + source)}})
		require.NoError(t, err)
		_, err = w.Describe(context.Background(), wasm)
		require.ErrorContains(t, err, want)
	}
}

// TestPolling: time.sleep, select and selectors behave as natively, in time that is real and
// in time that stands still.
func TestPolling(t *testing.T) {
	const source = `
import errno, os, select, selectors, time
from toolhost import plugin, tool

plugin("polling", description="Polls.")

def number(f):
    try:
        f()
    except OSError as e:
        return errno.errorcode[e.errno]

@tool
def polling() -> dict:
    """Polls."""
    found = {"write": select.select([], [1], [])[1], "read": select.select([0], [], [], 60)[0]}

    begin = time.monotonic()
    time.sleep(0.25)
    select.select([], [], [], 0.25)
    found["slept"] = round(time.monotonic() - begin, 2)

    poll = select.poll()
    poll.register(9, select.POLLIN)
    found["closed"] = [fd for fd, event in poll.poll() if event & select.POLLNVAL]

    with selectors.DefaultSelector() as s:
        s.register(2, selectors.EVENT_WRITE, "stderr")
        found["selected"] = [[key.data, mask] for key, mask in s.select()]
    return found

@tool
def listing() -> dict:
    """Lists a folder."""
    found = {"names": len(os.listdir("/work"))}
    found["directory"] = number(lambda: os.open("/work/0", os.O_RDONLY | os.O_DIRECTORY))
    return found
`
	project := fstest.MapFS{"tool.py": {Data: []byte(source)}}
	w := newWorld(t)
	m, _ := w.load(t, project)
	dir := t.TempDir()
	for i := range 300 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	o := w.call(t, m, "listing", "{}", func(c *host.Call) { c.Policy.Files = []host.Mount{{Dir: dir, Path: "/work"}} })
	require.JSONEq(t, `{"names":300,"directory":"ENOTDIR"}`, string(o.Value), o.Error)

	for _, granted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			m, _ := w.load(t, project)
			o := w.call(t, m, "polling", "{}", func(c *host.Call) { c.Policy.Clock, c.Policy.Timeout = granted, time.Minute })
			require.JSONEq(t, `{"write":[1],"read":[0],"slept":0.5,"closed":[9],"selected":[["stderr",2]]}`, string(o.Value), o.Error)
		})
	}
}

// TestArchive: a project has modules, packages with data, and wheels.
func TestArchive(t *testing.T) {
	wheel := zipped(t, map[string]string{
		"greetings/__init__.py": "from .words import WORD\n", "greetings/words.py": "WORD = 'hello'\n",
		"greetings-2.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: greetings\nVersion: 2.1\n",
	})
	project := fstest.MapFS{
		"tool.py": {Data: []byte(`
from importlib import metadata, resources
import greetings, helper
from names import deep
from toolhost import plugin, tool
plugin("packed", description="Packed.")

@tool
def greet() -> list[str]:
    "Greets."
    import late
    return [greetings.WORD, helper.NAME, deep.DEEP, late.LATE, metadata.version("greetings"), resources.files("names").joinpath("data.txt").read_text()]

@tool
def fails():
    "Fails in another module."
    helper.fail()
`)},
		"helper.py": {Data: []byte("NAME = 'helper'\ndef fail():\n    raise LookupError('lost')\n")}, "late.py": {Data: []byte("LATE = 'late'\n")},
		"names/__init__.py": {}, "names/deep.py": {Data: []byte("DEEP = 'deep'\n")}, "names/data.txt": {Data: []byte("data")},
		"test_tool.py": {Data: []byte("1/0\n")}, ".venv/x.py": {Data: []byte("1/0\n")},
		"wheels/greetings-2.1-py3-none-any.whl": {Data: wheel},
	}
	w := newWorld(t)
	m, _ := w.load(t, project)
	o := w.call(t, m, "greet", `{}`)
	require.Equal(t, `["hello","helper","deep","late","2.1","data"]`, string(o.Value), "%s %s", o.Error, w.log.String())
	o = w.call(t, m, "fails", `{}`)
	require.Equal(t, "LookupError: lost", o.Error)
	require.Contains(t, w.log.String(), `File \"helper.py\", line 3, in fail\n    raise LookupError('lost')`)

	first, err := python.Script(project)
	require.NoError(t, err)
	second, err := python.Script(project)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.NotContains(t, string(first), "test_tool.py")
	require.NotContains(t, string(first), ".venv")

	_, err = python.Script(fstest.MapFS{"main.py": {}})
	require.ErrorIs(t, err, python.ErrNoTool)
	_, err = python.Script(fstest.MapFS{"tool.py": {Data: []byte("1")}, "wheels/a-1-cp313-cp313-linux_x86_64.whl": {}})
	require.ErrorIs(t, err, python.ErrImpure)
	_, err = python.Script(fstest.MapFS{"tool.py": {Data: []byte("1")}, "wheels/a-1-py3-none-any.whl": {Data: zipped(t, map[string]string{"tool.py": ""})}})
	require.ErrorIs(t, err, python.ErrTwice)
	_, err = python.Script(fstest.MapFS{"tool.py": {Data: []byte("1")}, "data.py": {Data: make([]byte, 64<<20)}})
	require.ErrorIs(t, err, python.ErrLarge)
}

// TestStop: a coroutine that is stopped cleans up.
func TestStop(t *testing.T) {
	w := newWorld(t)
	m, _ := w.load(t, fstest.MapFS{"tool.py": {Data: []byte(`
import asyncio
from toolhost import plugin, tool
plugin("stops", description="Stops.", needs={"clock": True})

@tool
async def forever():
    "Waits."
    print("begins")
    try:
        await asyncio.sleep(1e9)
    finally:
        print("cleaned")
`)}})
	stop := make(chan struct{})
	var seen bytes.Buffer
	o := w.call(t, m, "forever", `{}`, clock, func(c *host.Call) {
		c.Stopping = stop
		c.Policy.Timeout = time.Minute
		c.Stdout = writer(func(p []byte) (int, error) {
			if seen.Len() == 0 {
				close(stop)
			}
			return seen.Write(p)
		})
	})
	require.Equal(t, "canceled", o.Error)
	require.Equal(t, "begins\ncleaned\n", seen.String())
}

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }
