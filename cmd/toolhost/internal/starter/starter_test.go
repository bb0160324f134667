package starter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/cmd/toolhost/internal/starter"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

type object = map[string]any

// pack is a service with the whole pack.
type pack struct {
	*server.Service
	t *testing.T
}

func open(t *testing.T, grants map[string]plugins.Grant, egress host.Egress) pack {
	t.Helper()
	s, err := server.Open(t.Context(), server.Config{
		Folders: []plugins.Folder{{Path: "starter", FS: starter.FS(starter.Names()), Pack: true}},
		Grants:  grants, CacheDir: plugintest.CacheDir(), Host: host.Config{Egress: egress},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	require.Empty(t, s.Problems())
	return pack{s, t}
}

// call calls a tool in a session, and returns its result as JSON, or its error.
func (p pack) call(session, tool string, args any) (result, failure string) {
	p.t.Helper()
	data, err := json.Marshal(args)
	require.NoError(p.t, err)
	r, err := p.Call(p.t.Context(), server.Request{Session: session, Tool: tool, Args: data})
	if r.Kind != abi.Success {
		return "", r.Error
	}
	require.NoError(p.t, err)
	return string(r.Value), ""
}

// gives requires a result.
func (p pack) gives(tool string, args object, want string) {
	p.t.Helper()
	have, failure := p.call("s", tool, args)
	require.Empty(p.t, failure)
	if want == "" {
		require.Empty(p.t, have)
		return
	}
	require.JSONEq(p.t, want, have)
}

// fails requires an error that has a text.
func (p pack) fails(tool string, args object, want string) {
	p.t.Helper()
	have, failure := p.call("s", tool, args)
	require.Contains(p.t, failure, want, have)
}

// All tools have the names that agents are promised, and what needs a grant is denied
// without one.
func TestNothingGranted(t *testing.T) {
	p := open(t, nil, host.Egress{})
	granted, denied := []string{}, []string{}
	for _, tool := range p.Tools() {
		require.Equal(t, tool.Tool.Name, tool.Name)
		if tool.Denied() == nil {
			granted = append(granted, tool.Name)
		} else {
			denied = append(denied, tool.Name)
		}
	}
	require.Equal(t, []string{"add", "divide", "echo", "multiply", "report_progress", "subtract"}, granted)
	require.Equal(t, []string{
		"delete_file", "edit_file", "get_current_time", "get_forecast", "get_weather", "grep_files", "list_directory",
		"memory_delete", "memory_get", "memory_list", "memory_set", "read_file", "stat_file", "web_fetch", "write_file", "write_todos",
	}, denied)
	p.fails("read_file", object{"path": "a"}, "the plugin files needs files /work (write)")
	p.fails("web_fetch", object{"url": "https://example.com"}, "the plugin web needs http")
}

func TestArithmetic(t *testing.T) {
	p := open(t, nil, host.Egress{})
	p.gives("add", object{"a": 0.5, "b": 2}, "2.5")
	p.gives("subtract", object{"a": 1, "b": 1e15}, "-999999999999999")
	p.gives("multiply", object{"a": -3, "b": 4}, "-12")
	p.gives("divide", object{"a": 1, "b": 3}, "0.3333333333333333")
	p.fails("divide", object{"a": 1, "b": 0}, "division by zero")
	p.fails("multiply", object{"a": 1e200, "b": 1e200}, "too large")
	p.gives("add", object{"a": "1", "b": 2}, "3") // as some clients write numbers
	p.fails("add", object{"a": "one", "b": 2}, "a")
}

func TestEcho(t *testing.T) {
	p := open(t, nil, host.Egress{})
	p.gives("echo", object{"text": "gr\u00fc\u00df\n\u2028\U0001f600"}, `"gr\u00fc\u00df\n\u2028\ud83d\ude00"`)

	var seen []string
	r, err := p.Call(t.Context(), server.Request{Session: "s", Tool: "report_progress", Args: []byte(`{"steps":3,"seconds":60,"message":"working"}`), Progress: func(p server.Progress) {
		seen = append(seen, fmt.Sprint(p.Done, p.Total, p.Message))
	}})
	require.NoError(t, err)
	require.JSONEq(t, `{"steps":3}`, string(r.Value), "without a clock the pauses take no time")
	require.Equal(t, []string{"1 3working", "2 3working", "3 3working"}, seen)
}

func TestClock(t *testing.T) {
	p := open(t, map[string]plugins.Grant{"clock": {Clock: true}}, host.Egress{})
	have, _ := p.call("s", "get_current_time", object{"utc_offset": "-09:30"})
	require.Regexp(t, `^\{"time":"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d-09:30","weekday":"[A-Z][a-z]+day","unix":\d{10}\}$`, have)
	have, _ = p.call("s", "get_current_time", object{})
	require.Contains(t, have, `+00:00"`)
	for _, offset := range []string{"", "Z", "+15:00", "+2", "+02:60", strings.Repeat("+", 1000)} {
		p.fails("get_current_time", object{"utc_offset": offset}, "expected an offset such as +02:00")
	}
}

func TestTodos(t *testing.T) {
	p := open(t, map[string]plugins.Grant{"todos": {Session: abi.StoreWrite}}, host.Egress{})
	list := []object{{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}}
	p.gives("write_todos", object{}, `{"todos":[]}`)
	p.gives("write_todos", object{"todos": list}, `{"total":2,"completed":1}`)
	p.gives("write_todos", object{}, `{"todos":[{"content":"a","status":"completed"},{"content":"b","status":"in_progress"}]}`)
	have, _ := p.call("another", "write_todos", object{})
	require.JSONEq(t, `{"todos":[]}`, have)
	p.gives("write_todos", object{"todos": []object{}}, `{"total":0,"completed":0}`)
	p.fails("write_todos", object{"todos": []object{{"content": "a", "status": "done"}}}, "status")
	p.fails("write_todos", object{"todos": make([]object, 101)}, "todos")
}

func TestMemory(t *testing.T) {
	p := open(t, map[string]plugins.Grant{"memory": {KV: host.KV{Mode: abi.StoreWrite, Keys: 3}}}, host.Egress{})
	p.gives("memory_set", object{"key": "user.name", "value": "Ana"}, "")
	have, _ := p.call("another", "memory_get", object{"key": "user.name"})
	require.JSONEq(t, `{"value":"Ana"}`, have)
	p.gives("memory_set", object{"key": "user.name", "value": nil}, "")
	p.gives("memory_get", object{"key": "user.name"}, `{"value":null}`)
	p.gives("memory_set", object{"key": "user.tags", "value": []any{1, object{"a": "b"}}}, "")
	p.gives("memory_set", object{"key": "x", "value": false}, "")
	p.gives("memory_list", object{"prefix": "user."}, `{"keys":["user.name","user.tags"]}`)
	p.gives("memory_list", object{"after": "user.name"}, `{"keys":["user.tags","x"]}`)
	p.fails("memory_set", object{"key": "y", "value": 1}, "there is no more space: delete what is no longer needed")
	p.gives("memory_delete", object{"key": "x"}, `{"deleted":true}`)
	p.gives("memory_delete", object{"key": "x"}, `{"deleted":false}`)
	p.fails("memory_get", object{"key": "x"}, "no value for x: memory_list returns the keys")
	p.fails("memory_set", object{"key": "a b", "value": 1}, "key")
}

func asJSON(t *testing.T, v any) string {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}

// files is the pack with a folder, next to what is not granted.
func files(t *testing.T) (p pack, work string) {
	dir := t.TempDir()
	work = filepath.Join(dir, "work")
	require.NoError(t, os.Mkdir(work, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("the secret"), 0o600))
	return open(t, map[string]plugins.Grant{"files": {Files: []host.Mount{{Dir: work, Path: "/work", Mode: abi.FileWrite}}}}, host.Egress{}), work
}

// Each step sees what the steps before it have left.
func TestFiles(t *testing.T) {
	p, work := files(t)
	p.gives("list_directory", object{}, `{"entries":[]}`)
	p.gives("write_file", object{"path": "src/a/b.txt", "content": "one\ntwo\nthr\u00e9e\n"}, `{"bytes":15}`)
	p.gives("write_file", object{"path": "/work/src/crlf.txt", "content": "one\r\ntwo\r\n"}, `{"bytes":10}`)
	p.gives("write_file", object{"path": "empty", "content": ""}, `{"bytes":0}`)
	p.gives("list_directory", object{}, `{"entries":["empty","src/"]}`)
	p.gives("list_directory", object{"path": "src", "limit": 1}, `{"entries":["a/"],"more":1}`)
	p.fails("list_directory", object{"path": "empty"}, "empty: a part of the path is not a folder")

	p.gives("read_file", object{"path": "./src//a/../a/b.txt"}, `{"text":"one\ntwo\nthr\u00e9e\n"}`)
	p.gives("read_file", object{"path": "src/a/b.txt", "offset": 1, "limit": 1}, `{"text":"two\n","next":2}`)
	p.gives("read_file", object{"path": "src/a/b.txt", "offset": 2, "limit": 1}, `{"text":"thr\u00e9e\n"}`)
	p.gives("read_file", object{"path": "empty"}, `{"text":""}`)
	p.fails("read_file", object{"path": "src/a/b.txt", "offset": 3}, "src/a/b.txt: there are only 3 lines")
	p.fails("read_file", object{"path": "src"}, "src: a folder: list_directory lists it")
	p.fails("read_file", object{"path": "src/b.txt"}, "src/b.txt: no such file or folder")
	p.fails("read_file", object{"path": "empty/b.txt"}, "empty/b.txt: a part of the path is not a folder")
	p.fails("read_file", object{"path": "a\x00b"}, "a\x00b: EINVAL")

	p.gives("edit_file", object{"path": "src/a/b.txt", "old": "two\nthr", "new": "$& 2\nt"}, `{"replaced":1,"line":2}`)
	p.fails("edit_file", object{"path": "src/a/b.txt", "old": "two", "new": ""}, "src/a/b.txt: the old text does not occur: read the file and copy the text exactly")
	p.fails("edit_file", object{"path": "src/a/b.txt", "old": "\u00e9", "new": ""}, "")
	p.fails("edit_file", object{"path": "src/a/b.txt", "old": "e", "new": ""}, "the old text occurs 2 times: give more of what is around it, or all: true")
	p.gives("edit_file", object{"path": "src/a/b.txt", "old": "e", "new": "E", "all": true}, `{"replaced":2,"line":1}`)
	have, err := os.ReadFile(filepath.Join(work, "src/a/b.txt"))
	require.NoError(t, err)
	require.Equal(t, "onE\n$& 2\ntE\n", string(have))

	p.gives("grep_files", object{"pattern": `^one$`}, `{"matches":["src/crlf.txt:1: one"]}`)
	p.gives("grep_files", object{"pattern": `^ONE$`, "ignore_case": true}, `{"matches":["src/crlf.txt:1: one","src/a/b.txt:1: onE"]}`)
	p.gives("grep_files", object{"pattern": `o`, "names": "*.t*t", "path": "src/a"}, `{"matches":["src/a/b.txt:1: onE"]}`)
	p.gives("grep_files", object{"pattern": `o`, "path": "src/crlf.txt", "limit": 1}, `{"matches":["src/crlf.txt:1: one"],"more":true}`)
	p.gives("grep_files", object{"pattern": `o`, "names": "b*"}, `{"matches":["src/a/b.txt:1: onE"]}`)
	p.fails("grep_files", object{"pattern": `(`}, "bad pattern: ")
	p.fails("grep_files", object{"pattern": `o`, "path": "none"}, "none: no such file or folder")

	meta, _ := p.call("s", "stat_file", object{"path": "src/crlf.txt"})
	require.Regexp(t, `^\{"type":"file","size":10,"modified":"20[0-9TZ:.-]+"\}$`, meta)
	meta, _ = p.call("s", "stat_file", object{"path": "."})
	require.Contains(t, meta, `"type":"folder"`)
	p.fails("delete_file", object{"path": "src"}, "src: the folder is not empty: delete what is in it first")
	p.gives("delete_file", object{"path": "src/a/b.txt"}, "")
	p.gives("delete_file", object{"path": "src/a"}, "")
	p.fails("delete_file", object{"path": "src/a"}, "src/a: no such file or folder")
	p.fails("delete_file", object{"path": "src/.."}, "the workspace itself cannot be deleted")
	p.fails("write_file", object{"path": "empty/x", "content": ""}, "empty/x: exists already, and is not a folder")
	p.fails("write_file", object{"path": "src", "content": ""}, "src: a folder")
}

// No path and no link leads out of the folder, for any tool.
func TestEscapes(t *testing.T) {
	p, work := files(t)
	require.NoError(t, os.Symlink("../secret", filepath.Join(work, "link")))
	require.NoError(t, os.Symlink("..", filepath.Join(work, "up")))
	require.NoError(t, os.Symlink("/", filepath.Join(work, "slash")))
	require.NoError(t, os.Symlink("self", filepath.Join(work, "self")))
	require.NoError(t, os.Symlink("inside", filepath.Join(work, "fine")))
	require.NoError(t, os.WriteFile(filepath.Join(work, "inside"), []byte("inside"), 0o600))

	for _, path := range []string{"../secret", "a/../../secret", "/etc/passwd", "/work/../secret", "/workx/a", "link", "up/secret", "slash/etc/passwd", "self", "..", "/", "//etc/passwd", "%2e%2e/secret", "..\\secret"} {
		for tool, args := range map[string]object{
			"read_file": {}, "write_file": {"content": "x"}, "edit_file": {"old": "the", "new": "x"}, "list_directory": {}, "grep_files": {"pattern": "secret"},
		} {
			if tool == "write_file" && !strings.Contains(path, "/") && path != "link" && path != ".." {
				continue // a new file inside
			}
			if tool == "write_file" && strings.HasPrefix(path, "%") {
				continue
			}
			args["path"] = path
			have, failure := p.call("s", tool, args)
			require.NotEmpty(t, failure, "%s %s: %s", tool, path, have)
			require.NotContains(t, have+failure, "the secret")
		}
	}
	p.fails("read_file", object{"path": "link"}, "link: not permitted: it may lead out of the workspace")
	p.fails("read_file", object{"path": "../secret"}, "../secret: outside of the workspace")
	p.gives("read_file", object{"path": "fine"}, `{"text":"inside"}`)
	p.gives("grep_files", object{"pattern": "inside|secret"}, `{"matches":["inside:1: inside"]}`)

	p.gives("delete_file", object{"path": "up"}, "") // the link itself
	p.gives("delete_file", object{"path": "link"}, "")
	secret, err := os.ReadFile(filepath.Join(work, "../secret"))
	require.NoError(t, err)
	require.Equal(t, "the secret", string(secret))
}

// What is large, endless or no text costs a bounded amount, and says so.
func TestHostileFiles(t *testing.T) {
	p, work := files(t)
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(work, name), []byte(content), 0o600))
	}

	write("giant", strings.Repeat("a line of text\n", 5000))
	require.NoError(t, os.Truncate(filepath.Join(work, "giant"), 8<<30))
	have, failure := p.call("s", "read_file", object{"path": "giant", "offset": 4000, "limit": 2})
	require.Empty(t, failure)
	require.JSONEq(t, `{"text":"a line of text\na line of text\n","next":4002}`, have)
	p.fails("edit_file", object{"path": "giant", "old": "a", "new": "b"}, "giant: 8589934592 bytes, expected at most 4194304")
	p.gives("grep_files", object{"pattern": "line"}, `{"matches":[],"skipped":1}`)
	require.NoError(t, os.Remove(filepath.Join(work, "giant")))

	write("binary", "\x7fELF\x00\x01")
	p.fails("read_file", object{"path": "binary"}, "binary: 6 bytes that are not text")
	write("latin", "gr\xfc\xdf")
	p.gives("read_file", object{"path": "latin"}, `{"text":"gr\ufffd\ufffd"}`)
	p.fails("edit_file", object{"path": "latin", "old": "gr", "new": "b"}, "latin: not a text in UTF-8")
	require.NoError(t, os.Remove(filepath.Join(work, "latin")))
	require.NoError(t, os.Remove(filepath.Join(work, "binary")))

	// All that is in a file is read in pieces, but for what is cut of a line.
	long := strings.Repeat("\u00fc", 150_000)
	write("lines", strings.Repeat("x", 150_000)+"\n"+strings.Repeat("y", 150_000)+"\n"+long+"\nend\n")
	var page struct {
		Text string
		Next *int
		Cut  bool
	}
	var all strings.Builder
	var cuts []bool
	for next := 0; ; next = *page.Next {
		page.Next, page.Cut = nil, false
		have, failure := p.call("s", "read_file", object{"path": "lines", "offset": next})
		require.Empty(t, failure)
		require.NoError(t, json.Unmarshal([]byte(have), &page))
		all.WriteString(page.Text)
		cuts = append(cuts, page.Cut)
		if page.Next == nil {
			break
		}
	}
	require.Equal(t, []bool{false, false, true, false}, cuts)
	require.Equal(t, strings.Repeat("x", 150_000)+"\n"+strings.Repeat("y", 150_000)+"\n"+long[:200_000]+"end\n", all.String())
	have, failure = p.call("s", "grep_files", object{"pattern": "x+"})
	require.Empty(t, failure)
	require.Less(t, len(have), 1000)
	require.NoError(t, os.Remove(filepath.Join(work, "lines")))

	// A pattern that would take until the end of the world ends with the fuel.
	write("bomb", strings.Repeat("a", 40)+"!\n")
	r, err := p.Call(t.Context(), server.Request{Session: "s", Tool: "grep_files", Args: []byte(`{"pattern":"^(a+)+$"}`), Limits: server.Limits{Fuel: 2_000_000_000}})
	require.ErrorIs(t, err, host.ErrFuel)
	require.Equal(t, abi.LimitReached, r.Kind)
	require.Equal(t, abi.LimitFuel, r.Limit)

	// Nothing is opened that is no file or folder.
	if mkfifo(filepath.Join(work, "pipe")) == nil {
		p.fails("read_file", object{"path": "pipe"}, "pipe: not a file")
		p.fails("edit_file", object{"path": "pipe", "old": "a", "new": "b"}, "pipe: not a file")
		p.gives("grep_files", object{"pattern": "x", "path": "pipe"}, `{"matches":[]}`)
	}

	for i := range 6000 {
		write(fmt.Sprintf("many-%04d", i), "")
	}
	have, failure = p.call("s", "list_directory", object{"limit": 5000})
	require.Empty(t, failure)
	require.Contains(t, have, `"more":1002`)
}
