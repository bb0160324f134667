package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost"
	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server"
)

var dist string // the built plugins

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if dist, err = os.MkdirTemp("", "agent"); err == nil {
			defer os.RemoveAll(dist)
			_, err = buildPlugins(context.Background(), dist)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// play runs the agent on real plugins, in a bubble: a rest takes no time, and a
// loop that waits for what never comes is found.
func play(t *testing.T, m model) (transcript string, err error) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		err = run(t.Context(), dist, m, &out)
		transcript = regexp.MustCompile(`bg_\w{26}`).ReplaceAllString(out.String(), "TASK")
	})
	return transcript, err
}

func TestAgent(t *testing.T) {
	transcript, err := play(t, script)
	require.NoError(t, err)
	rest := transcript
	for _, want := range []string{
		`> call-1 spawn_background {"tool":"primes"`,
		`< call-1 {"task_id":"TASK","status":"queued"`,
		`< call-2 error: the arguments of wordcount do not fit its schema: missing: text`,
		`> call-3 wordcount {"text":"to be or not to be"}`,
		`> call-5 note {"text":"wordcount takes a text"}`,
		`< call-4 {"type":"background","task_id":"TASK"`,
		`< call-5 {"notes":1}`,
		`[user] So far: {"Words":6,`,
		`TASK running clock_sleep`,
		`[assistant] I wait for what still runs.`,
		`[user] <background-results>`,
		`"result":{"slept_seconds":3}`,
		`[assistant] There are 664579 primes, it is 6 words, and I had a rest of 3 seconds.`,
	} {
		_, after, found := strings.Cut(rest, want)
		require.True(t, found, "%s\nis not in, or not in this order\n%s", want, transcript)
		rest = after
	}
	require.Contains(t, transcript, `[TASK] succeeded "Count primes"`)
	require.Contains(t, transcript, `[TASK] succeeded "Background clock_sleep"`)
	require.Contains(t, transcript, `"count":664579`)
}

// without is the script for a loop that leaves out some of the text.
func without(pattern string) model {
	forgotten := regexp.MustCompile(pattern)
	return func(ctx context.Context, messages []message, tools []tool) (reply, error) {
		var left []message
		for _, m := range messages {
			m.Text = forgotten.ReplaceAllString(m.Text, "")
			if m.Text != "" || len(m.Calls)+len(m.Results) > 0 {
				left = append(left, m)
			}
		}
		return script(ctx, left, tools)
	}
}

// The script finds a loop that does not do its part.
func TestForgetfulLoop(t *testing.T) {
	for name, c := range map[string]struct {
		model model
		want  string
	}{
		"no notices":  {without(`(?s)^<background-results>.*`), "told nothing new"},
		"no snapshot": {without(`(?s)\nActive background tasks.*`), "lost sight of a run"},
		"no tools": {func(ctx context.Context, messages []message, _ []tool) (reply, error) {
			return script(ctx, messages, nil)
		}, "has not the tools"},
		"no results": {func(ctx context.Context, messages []message, tools []tool) (reply, error) {
			for i := range messages {
				messages[i].Results = nil
			}
			return script(ctx, messages, tools)
		}, "cannot tell what is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			transcript, err := play(t, c.model)
			require.ErrorContains(t, err, c.want, transcript)
		})
	}
}

// A tool that writes much, or for a terminal, harms neither the conversation nor
// who reads along.
func TestHostileResults(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"much": strings.Repeat("é", 30_000), "little": "é"} {
		say := plugintest.Do().Say(abi.StreamResult, fmt.Sprintf("%q", text))
		plugin := plugintest.Plugin{Manifest: plugintest.Manifest(name), Invoke: say}
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".wasm"), plugin.Wasm(), 0o600))
	}
	th, err := toolhost.Open(t.Context(), toolhost.Config{Plugins: []string{folder}, Cache: cacheDir()})
	require.NoError(t, err)
	defer func() { require.NoError(t, th.Close(context.Background())) }()
	a := agent{session: th.Session("s"), out: io.Discard}
	results := a.callAll(t.Context(), []call{{ID: "1", Name: "much", Input: []byte("{}")}, {ID: "2", Name: "little", Input: []byte("{}")}})
	require.False(t, results[0].IsError, results[0].Text)
	require.Less(t, len(results[0].Text), maxResult+100)
	require.Contains(t, results[0].Text, "[these are the first 50000 of 60002 bytes]")
	require.True(t, utf8.ValidString(results[0].Text))
	require.Equal(t, `"é"`, results[1].Text)

	require.Equal(t, "< 1 error: red0m\n", message{Results: []result{{CallID: "1", IsError: true, Text: "\x1b[31mred\x1b]0;title\a\u009b0m"}}}.String())
}

// A model whose API failed gets the pending notices at its next turn,
// and then no more.
func TestNoticeSurvivesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		th, err := toolhost.Open(ctx, toolhost.Config{Plugins: []string{dist}, Cache: cacheDir()})
		require.NoError(t, err)
		defer func() { require.NoError(t, th.Close(ctx)) }()
		s := th.Session("s")
		_, err = s.Spawn(ctx, server.SpawnRequest{Tool: "primes", Args: []byte(`{"limit":10}`)})
		require.NoError(t, err)
		ended, err := s.Wait(ctx)
		require.NoError(t, err)
		require.True(t, ended)
		a := agent{session: s, out: io.Discard}
		overloaded := errors.New("overloaded")
		a.model = func(context.Context, []message, []tool) (reply, error) { return reply{}, overloaded }
		_, err = a.turn(ctx, nil, nil)
		require.ErrorIs(t, err, overloaded)

		a.model = func(context.Context, []message, []tool) (reply, error) { return reply{Text: "I see."}, nil }
		messages, err := a.turn(ctx, nil, nil)
		require.NoError(t, err)
		require.Len(t, messages, 2)
		require.Contains(t, messages[0].Text, "<background-results>")
		messages, err = a.turn(ctx, nil, nil)
		require.NoError(t, err)
		require.Len(t, messages, 1)
	})
}

// TestCompilesFirst: no call has to wait until its plugin is compiled, which would park it
// on a slow machine.
func TestCompilesFirst(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	folder := t.TempDir()
	plugin := plugintest.Plugin{Manifest: plugintest.Manifest("hello"), Invoke: plugintest.Do().Echo()}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "hello.wasm"), plugin.Wasm(), 0o600))

	asked := errors.New("the model was asked")
	err := run(t.Context(), folder, func(context.Context, []message, []tool) (reply, error) {
		compiled, err := filepath.Glob(filepath.Join(cacheDir(), "code", "*", "module-*"))
		require.NoError(t, err)
		require.Len(t, compiled, 1)
		return reply{}, asked
	}, io.Discard)
	require.ErrorIs(t, err, asked)
}

// A run that waits, or has not begun, goes on after a summary as one that runs does.
func TestRunsAfterSummary(t *testing.T) {
	for _, status := range []string{"queued", "running", "waiting"} {
		m := read([]message{{Role: user, Text: soFar + "{}\nActive background tasks of this session: 1\nbg_abc " + status + ` clock_sleep "Rest" for 1s`}})
		require.Equal(t, map[string]progress{"bg_abc": running}, m.runs, status)
	}
}
