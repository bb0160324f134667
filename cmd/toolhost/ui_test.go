package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// screen is what a terminal shows: its last line is redrawn in place.
func screen(written string) []string {
	lines := strings.Split(written, "\n")
	for i, line := range lines {
		if at := strings.LastIndex(line, "\r\x1b[K"); at >= 0 {
			lines[i] = line[at+len("\r\x1b[K"):]
		}
	}
	return lines
}

// The bar stays on the last line, output passes above it, and it is gone in
// the end.
func TestBar(t *testing.T) {
	var w bytes.Buffer
	b := &bar{w: &w, width: 60}
	b.setRun(wire.Run{})
	require.Empty(t, w.String(), "a run that says nothing has no bar")
	b.setRun(wire.Run{Progress: &wire.Progress{Done: 1, Total: 4, Message: "first"}})
	require.Equal(t, []string{"██████░░░░░░░░░░░░░░░░░░  25% first"}, screen(w.String()))
	_, err := b.above(&output{to: &w}, []byte("said\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"said", "██████░░░░░░░░░░░░░░░░░░  25% first"}, screen(w.String()))
	b.setRun(wire.Run{Progress: &wire.Progress{Done: 8, Total: 4, Message: "\x1b[31mred\nline" + strings.Repeat("x", 99)}})
	last := screen(w.String())[1]
	require.True(t, strings.HasPrefix(last, "████████████████████████ 100% red linex"), last)
	require.Len(t, []rune(last), 59, "it fits on one line")
	b.clear()
	require.Equal(t, []string{"said", ""}, screen(w.String()))
}

// The bar is never wrapped, which would leave the rest of it behind.
func TestBarFitsNarrowTerminals(t *testing.T) {
	for line, want := range map[string]string{
		"":             "",
		"12345678":     "12345678",
		"123456789":    "12345678",
		"██░░ 5% x":    "██░░ 5% ",
		"東京都庁の前":       "東京都庁",
		"1 東京都庁の前":     "1 東京都",
		"Zürich läuft": "Zürich l",
	} {
		require.Equal(t, want, fill(line, 8), line)
	}
}

// Of several runs the bar shows how far they are together.
func TestBarOfSeveralRuns(t *testing.T) {
	var w bytes.Buffer
	b := &bar{w: &w, width: 80}
	b.setRuns([]wire.Run{
		{Done: true},
		{Progress: &wire.Progress{Done: 1, Total: 2}},
		{},
		{Progress: &wire.Progress{Done: 5}},
	})
	require.Equal(t, []string{"█████████░░░░░░░░░░░░░░░  38% 1 of 4 have ended"}, screen(w.String()))
}

// Where nobody looks there is no bar.
func TestNoBarOffATerminal(t *testing.T) {
	var w bytes.Buffer
	b := newBar(&w)
	b.setRun(wire.Run{Progress: &wire.Progress{Done: 1, Total: 4}})
	b.clear()
	require.Empty(t, w.String())
}

// The exit code says how a run ended.
func TestRunExitCodes(t *testing.T) {
	failed := func(kind wire.ErrorKind) wire.Run {
		return wire.Run{Done: true, Status: wire.StatusFailed, Error: &wire.RunError{Kind: kind, Message: "it\x1b[2J broke"}}
	}
	for name, test := range map[string]struct {
		run  wire.Run
		exit int
		code string
	}{
		"succeeded":   {wire.Run{Done: true, Status: wire.StatusSucceeded}, exitOK, ""},
		"running":     {wire.Run{Status: wire.StatusRunning}, exitOK, ""},
		"canceled":    {wire.Run{Done: true, Status: wire.StatusCanceled}, exitToolError, "canceled"},
		"tool error":  {failed(wire.KindToolError), exitToolError, "tool_error"},
		"orphaned":    {failed(wire.KindOrphaned), exitToolError, "orphaned"},
		"interrupted": {failed(wire.KindInterrupted), exitToolError, "interrupted"},
		"fuel":        {failed(wire.KindFuelExhausted), exitLimit, "fuel_exhausted"},
		"memory":      {failed(wire.KindMemoryLimit), exitLimit, "memory_limit"},
		"output":      {failed(wire.KindOutputLimit), exitLimit, "output_limit"},
		"time":        {failed(wire.KindTimeout), exitLimit, "timeout"},
		"no place":    {failed(wire.KindLimit), exitLimit, "limit"},
		"rejected":    {failed(wire.KindRejected), exitDenied, "rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			err := outcome(wire.Runs{Runs: []wire.Run{test.run}})
			if test.exit == exitOK {
				require.NoError(t, err)
				return
			}
			d := diagnose(t.Context(), err)
			require.Equal(t, test.exit, d.exit)
			require.Equal(t, test.code, d.Code)
			require.NotContains(t, d.Message, "\x1b", "a terminal shows it")
		})
	}
}

// A denial by a rule about approvals has no hint about grants.
func TestDenialHint(t *testing.T) {
	for _, err := range []error{
		&wire.Problem{Code: wire.CodeDenied, Detail: "the operator's policy refuses files_delete (approvals.tools.files_delete)"},
		fmt.Errorf("%w: the operator's policy refuses files_delete (approvals.tools.files_delete)", server.ErrApproval),
	} {
		d := diagnose(t.Context(), err)
		require.Equal(t, exitDenied, d.exit)
		require.Contains(t, d.Message, "approvals.tools.files_delete")
		require.Empty(t, d.Hint)
	}
}

// A full disk has a hint, in a start and in a mistaken choice of a folder alike.
func TestFullDiskHint(t *testing.T) {
	full := &os.PathError{Op: "mkdir", Path: "/var/lib/toolhost/cache", Err: syscall.ENOSPC}
	for _, err := range []error{
		fmt.Errorf("opening the data directory /var/lib/toolhost: %w", engine.ErrFull),
		fmt.Errorf("opening the audit log: %w", full),
		&usageError{fmt.Errorf("data folder: %w", full), "choose another with --data"},
	} {
		d := diagnose(t.Context(), err)
		require.Equal(t, exitToolError, d.exit)
		require.Equal(t, "unavailable", d.Code)
		require.Contains(t, d.Message, "/var/lib/toolhost")
		require.Contains(t, d.Hint, "make room on that disk")
	}
}

// The exit code says why a server refused.
func TestRefusalExitCodes(t *testing.T) {
	for code, exit := range map[wire.Code]int{
		wire.CodeInvalid: exitUsage, wire.CodeMediaType: exitUsage, wire.CodeTooLarge: exitLimit,
		wire.CodeLimit: exitLimit, wire.CodeNotFound: exitNotFound,
		wire.CodeDenied: exitDenied, wire.CodeUnauthorized: exitDenied, wire.CodeForbidden: exitDenied,
		wire.CodeConflict: exitUsage, wire.CodeUnsupported: exitUsage,
		wire.CodeInternal: exitToolError, wire.CodeClosing: exitToolError,
	} {
		require.Equal(t, exit, diagnose(t.Context(), &wire.Problem{Code: code, Detail: "x"}).exit, code)
	}
}

// What people are shown of states and times.
func TestTaskWords(t *testing.T) {
	for status, want := range map[wire.Status]string{
		wire.StatusQueued: "○", wire.StatusRunning: "●", wire.StatusSucceeded: "✓",
		wire.StatusFailed: "✗", wire.StatusCanceled: "■", "else": "?",
	} {
		require.Equal(t, want, icon(status), status)
	}
	for seconds, want := range map[float64]string{0: "0.0s", 12.34: "12.3s", 59.94: "59.9s", 60: "1.0m", 126: "2.1m", 7200: "2.0h"} {
		require.Equal(t, want, elapsed(seconds))
	}
}

// What a run says of itself looks different from what the host says of it.
func TestDoing(t *testing.T) {
	progress := &wire.Progress{Done: 1, Total: 4, Message: "12 primes"}
	for _, test := range []struct {
		run  wire.Run
		want string
	}{
		{wire.Run{}, ""},
		{wire.Run{Progress: progress}, "25% 12 primes"},
		{wire.Run{Detail: "running again, attempt 2"}, "running again, attempt 2"},
		{wire.Run{Progress: &wire.Progress{}, Detail: "waiting"}, "waiting"},
		{wire.Run{Progress: progress, Detail: "running again, attempt 2"}, "25% 12 primes · running again, attempt 2"},
	} {
		require.Equal(t, test.want, doing(test.run))
	}
}

// That the server went away is said on a line of its own: the bar is gone
// before, and comes back with the next progress.
func TestServerAwayClearsTheBar(t *testing.T) {
	var w bytes.Buffer
	b := &bar{w: &w, width: 60}
	b.set(1, 4, "first")
	b.away(&client.Unreachable{Address: "here", Refused: true})
	require.Equal(t, []string{"toolhost: no server at here; waiting for it to come back", ""}, screen(w.String()))
	b.set(1, 4, "first")
	require.Equal(t, "██████░░░░░░░░░░░░░░░░░░  25% first", screen(w.String())[1])
}

// Live output cannot pass for the host's own messages: each line is marked, also off a
// terminal, and nothing controls the terminal that shows the log later.
func TestLiveOutput(t *testing.T) {
	for name, test := range map[string]struct {
		say  func(b *bar, out, err *output)
		want string
	}{
		"lines": {func(_ *bar, out, _ *output) { fmt.Fprint(out, "one\ntime=now level=ERROR\n") }, "t | one\nt | time=now level=ERROR\n"},
		"a line in pieces": {func(_ *bar, out, _ *output) {
			fmt.Fprint(out, "on")
			fmt.Fprint(out, "e\ntwo")
			out.end()
		}, "t | one\nt | two\n"},
		"two streams": {func(_ *bar, out, err *output) {
			fmt.Fprint(out, "one")
			fmt.Fprint(err, "two")
			fmt.Fprint(err, ", three\n")
			fmt.Fprint(out, "four\n")
		}, "t | one\nt | two, three\nt | four\n"},
		"a note within a line": {func(b *bar, out, _ *output) {
			fmt.Fprint(out, "tool")
			b.notef("toolhost: away\rfrom")
			fmt.Fprint(out, "host: hint\n")
		}, "t | tool\ntoolhost: away from\nt | host: hint\n"},
		"escapes": {func(_ *bar, out, _ *output) {
			fmt.Fprint(out, "\x1b[31mred\x1b[")
			fmt.Fprint(out, "0m\x1b]0;ow")
			fmt.Fprint(out, "ned\a \u202eend\r")
			fmt.Fprint(out, "\x1b[1A\n")
		}, "t | red ⟨U+202E⟩end\n"},
		"omitted": {func(_ *bar, out, _ *output) {
			out.take(wire.Output{Text: "a"})
			out.take(wire.Output{Omitted: 3, Text: "b"})
			out.end()
		}, "t | a\nt | [system] 3 bytes omitted\nt | b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var w bytes.Buffer
			b := newBar(&w)
			test.say(b, b.live("t"), b.live("t"))
			require.Equal(t, test.want, w.String())
		})
	}

	var w bytes.Buffer
	u := ui{err: &w}
	u.fail(diagnosis{Message: "it broke\rnothing broke\ntime=now level=INFO\x1b[1A"})
	require.Equal(t, "toolhost: it broke nothing broke\ntoolhost: time=now level=INFO\n", w.String())
}

// Text of a plugin in a line leaves no pieces of escape sequences.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\x1b[31mred\x1b[0m":       "ared",
		"\x1b]0;owned\x07a\r\nb\tc": "a  b c",
		"real\rfake":                "real fake",
		"\u202ea":                   "⟨U+202E⟩a",
	} {
		require.Equal(t, want, oneLine(text), "%q", text)
	}
}

// Output of a run is passed on as it is where no terminal is, with what is missing.
func TestOutputOffATerminal(t *testing.T) {
	var w bytes.Buffer
	o := newBar(&w).output(&w)
	o.take(wire.Output{Text: "\x1b[31mred\x1b[0m\n"})
	o.take(wire.Output{Base64: []byte("\xff\xc3")})
	o.take(wire.Output{Omitted: 3, Text: "\u202eend"})
	o.end()
	require.Equal(t, "\x1b[31mred\x1b[0m\n\xff\xc3\n[system] 3 bytes omitted\n\u202eend", w.String())

	data, err := json.Marshal(newLog("bg_x", []byte("\xff\xfe")))
	require.NoError(t, err)
	require.JSONEq(t, `{"task_id":"bg_x","text":"","base64":"//4="}`, string(data))
}

// A command that waits for a call says once how to decide on it.
func TestWaitForApproval(t *testing.T) {
	var out bytes.Buffer
	b, said := newBar(&out), map[string]bool{}
	held := wire.Run{TaskID: "bg_1", Status: wire.StatusQueued, Held: "approval"}
	for range 2 {
		b.holds([]wire.Run{held, {TaskID: "bg_2", Status: wire.StatusRunning}}, said)
	}
	require.Equal(t, "toolhost: it waits for approval: toolhost approve bg_1\n", out.String())
}
