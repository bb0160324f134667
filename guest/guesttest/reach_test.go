package guesttest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

// asking asks its user one thing, and returns the answer.
func asking(c *guest.Call, _ struct{}) (guest.Answer, error) {
	answers, err := c.Ask(map[string]guest.Question{
		"name": guest.Form("Who are you?", `{"type":"object","properties":{"name":{"type":"string","minLength":2}},"required":["name"]}`),
	})
	return answers["name"], err
}

// Only an answer that fits its question reaches the tool.
func TestAnswers(t *testing.T) {
	p := plugin(tool(guest.Handle(asking)))
	for name, c := range map[string]struct {
		answers     map[string]guest.Answer
		value, want string
	}{
		"accepted":  {map[string]guest.Answer{"name": Accept(`{"name":"Ana"}`)}, `{"action":"accept","content":{"name":"Ana"}}`, ""},
		"declined":  {map[string]guest.Answer{"name": {Action: abi.AnswerDecline}}, `{"action":"decline"}`, ""},
		"too short": {map[string]guest.Answer{"name": Accept(`{"name":"A"}`)}, "", "ask: failed: not an answer to the question name: /name: minLength: got 1, want 2"},
		"empty":     {map[string]guest.Answer{"name": {Action: abi.AnswerAccept}}, "", "ask: failed: not an answer to the question name: it has no content"},
		"both":      {map[string]guest.Answer{"name": {Action: abi.AnswerCancel, Content: []byte(`{}`)}}, "", "ask: failed: not an answer to the question name: only an accepted question has content"},
		"shrugged":  {map[string]guest.Answer{"name": {Action: "shrug"}}, "", `ask: failed: not an answer to the question name: expected the action accept, decline or cancel, found "shrug"`},
		"another":   {map[string]guest.Answer{"age": {}}, "", `ask: failed: no answer to the question "name" is among the Answers of the test`},
		"nobody":    {nil, "", "ask: denied: ask is not granted to this plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			out := Host{Answers: c.answers}.Call(p, "tool", struct{}{})
			require.Equal(t, c.want, out.Error)
			require.Equal(t, c.value, string(out.Value))
			if c.answers != nil {
				require.Len(t, out.Questions, 1)
				require.Equal(t, "Who are you?", out.Questions[0].Message)
			}
		})
	}
}

// A tool finds its folders where the test has put them, and no others.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("found"), 0o600))
	p := plugin(tool(guest.Handle(func(c *guest.Call, _ struct{}) (string, error) {
		data, err := os.ReadFile(filepath.Join(c.Folder("/work"), "a.txt"))
		return string(data), err
	})))
	require.Equal(t, `"found"`, string(Host{Folders: map[string]string{"/work": dir}}.Call(p, "tool", struct{}{}).Value))
	require.Contains(t, Call(p, "tool", struct{}{}).Error, "not in guesttest.Host.Folders/work/a.txt")
}

// TestCheckSeesFolders: the folders of examples are copies of those below testdata.
func TestCheckSeesFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("testdata/work", 0o700))
	require.NoError(t, os.WriteFile("testdata/work/n", []byte("1"), 0o600))
	counts := tool(guest.Handle(func(c *guest.Call, _ struct{}) (string, error) {
		name := filepath.Join(c.Folder("/work"), "n")
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(name, append(data, '1'), 0o600)
		}
		return string(data), err
	}), guest.Example{Name: "first", Args: struct{}{}, Result: "1"}, guest.Example{Name: "second", Args: struct{}{}, Result: "1"})
	p := plugin(counts)
	p.Needs.Files = []guest.FileNeed{{Path: "/work", Mode: "write"}}
	Check(t, p)
	data, err := os.ReadFile("testdata/work/n")
	require.NoError(t, err)
	require.Equal(t, "1", string(data))
}

// An example that fails may lack the files of a folder.
func TestMissingFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("testdata/work", 0o700))
	copies, missing := folders(t, []abi.FileNeed{{Path: "/work"}, {Path: "/sales"}})
	require.Len(t, copies, 2)
	require.Equal(t, "\n/sales was empty: there is no "+filepath.Join("testdata", "sales"), missing)
}

// made is a channel that outlives an example.
var made = make(chan int, 1)

// TestExamplesAreFree: an example may leave a goroutine, and use what others have made.
func TestExamplesAreFree(t *testing.T) {
	once := sync.OnceValue(func() chan int { return make(chan int, 1) })
	run := guest.Handle(func(*guest.Call, struct{}) (int, error) {
		go func() { select {} }()
		made <- 1
		once() <- 2
		return <-made + <-once(), nil
	})
	Check(t, plugin(tool(run, guest.Example{Args: struct{}{}, Result: 3}, guest.Example{Args: struct{}{}, Result: 3})))
}

// TestStoppedClock: a test sees the time of the sandbox if it asks for it.
func TestStoppedClock(t *testing.T) {
	now := guest.Handle(func(*guest.Call, struct{}) (string, error) {
		before := time.Now()
		time.Sleep(time.Hour)
		return before.UTC().Format(time.RFC3339) + " " + time.Since(before).String(), nil
	})
	p := plugin(tool(now))
	StoppedClock(t, func(t *testing.T) {
		require.Equal(t, `"2022-01-01T00:00:00Z 1h0m0s"`, string(Call(p, "tool", struct{}{}).Value))
	})
}
