package background

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func TestCheckShowsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := 0
		m := newManager(t, Config{Executor: func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			sink.Status("counting")
			sink.Progress(1, 4, "first")
			_, _ = sink.Stdout().Write([]byte("one\n"))
			time.Sleep(90 * time.Second)
			return Outcome{Summary: "counted", Result: json.RawMessage(`{"n":4}`), ExitCode: &code}, nil
		}})
		s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "count", Title: "Count", Timeout: 100 * time.Second})
		require.NoError(t, err)
		start := time.Now()
		shows := func(status engine.Status, end engine.End) {
			t.Helper()
			report := check(t, m, alice, CheckRequest{IDs: []string{s.ID}})
			require.Equal(t, []string{s.ID, "count", "Count", string(status)}, []string{report.ID, report.Tool, report.Title, string(report.Status)})
			require.Equal(t, status.Terminal(), report.Final())
			require.Equal(t, "counting", report.Detail)
			require.Equal(t, engine.Progress{Done: 1, Total: 4, Message: "first"}, *report.Progress)
			require.True(t, report.Output.LastOutputAt.Equal(start))
			report.Output.LastOutputAt = time.Time{}
			require.Equal(t, output.Excerpt{Text: "one\n", Cursor: "1:4"}, *report.Output)
			end.FinishedAt = report.FinishedAt
			require.Equal(t, end, report.End)
		}

		synctest.Wait()
		time.Sleep(12340 * time.Millisecond)
		shows(engine.StatusRunning, engine.End{})
		wait(t, m, alice, s.ID)
		for range 2 { // reading changes nothing
			shows(engine.StatusSucceeded, engine.End{Summary: "counted", Result: json.RawMessage(`{"n":4}`), ResultStart: `{"n":4}`, ResultSize: 7, ExitCode: &code})
		}
	})
}

func TestCheckRefusesBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "echo")
		many := make([]string, 21)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for field, req := range map[string]CheckRequest{
			"task_id":  {},
			"task_ids": {IDs: many},
			"until":    {IDs: []string{id}, Until: "some"},
			"cursor":   {IDs: []string{id, "bg_other"}, Cursor: "1:0"},
		} {
			_, err := m.Check(t.Context(), alice, req)
			var bad *FieldError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, field, bad.Field)
		}
		for _, c := range []string{"x", "1", "1:", ":1", "1:-1", "-1:1", "01:1", "1:1 ", "1:99999999999999999999", "1:0x1"} {
			_, err := m.Check(t.Context(), alice, CheckRequest{IDs: []string{id}, Cursor: c})
			require.ErrorIs(t, err, ErrInvalid, c)
		}
	})
}

// The answers for an unknown id, an id of another session and the id of a purged run
// are the same, byte for byte, except for the requested id.
func TestForeignAndUnknownAreAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{RetainRuns: 1})
		purged := spawned(t, m, alice, "echo")
		require.NoError(t, m.Acknowledge(t.Context(), alice, []string{purged}))
		time.Sleep(time.Second)
		spawned(t, m, alice, "echo")
		time.Sleep(pruneEvery)
		foreign := spawned(t, m, bob, "sleep")
		own := spawned(t, m, alice, "sleep")

		answers := func(id string) string {
			var out strings.Builder
			began := time.Now()
			note := func(v any, err error) {
				var unknown *NotFoundError
				require.ErrorAs(t, err, &unknown)
				require.ErrorIs(t, err, engine.ErrNotFound)
				require.Equal(t, []string{own}, unknown.Active)
				text, jsonErr := json.Marshal(v)
				require.NoError(t, jsonErr)
				fmt.Fprintf(&out, "%s %v %+v\n", text, err, *unknown)
			}
			note(m.Get(t.Context(), alice, id))
			note(m.Check(t.Context(), alice, CheckRequest{IDs: []string{id}, Wait: time.Minute}))
			note(m.Check(t.Context(), alice, CheckRequest{IDs: []string{id}, Cursor: "1:2"}))
			note(awaited(t.Context(), m, alice, []string{id, own}, UntilAll))
			note(m.Stop(t.Context(), alice, id, StopRequest{Force: true}))
			require.Zero(t, time.Since(began), "nothing is waited for")
			return strings.ReplaceAll(out.String(), id, "ID")
		}
		unknown := answers("bg_aaaaaaaaaaaaaaaaaaaaaaaaaa")
		require.Equal(t, unknown, answers(foreign))
		require.Equal(t, unknown, answers(purged))
		run, err := m.Get(t.Context(), bob, foreign)
		require.NoError(t, err)
		require.Equal(t, engine.StatusRunning, run.Status)
		require.Nil(t, run.Cancel)
	})
}

func TestCheckOfSomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "second")
		checked, err := m.Check(t.Context(), alice, CheckRequest{IDs: []string{"bg_x", id, "bg_y", id}, Wait: time.Minute})
		require.NoError(t, err)
		require.Len(t, checked.Reports, 1)
		require.Equal(t, engine.StatusSucceeded, checked.Reports[0].Status)
		require.Equal(t, []string{"bg_x", "bg_y"}, checked.Missing.IDs)
		require.Equal(t, "no such background task in this session: bg_x, bg_y", checked.Missing.Error())
	})
}

func TestCheckWaits(t *testing.T) {
	for name, c := range map[string]struct {
		tools []string
		wait  time.Duration
		until Until
		took  time.Duration
		done  int
	}{
		"not at all":            {[]string{"second"}, 0, "", 0, 0},
		"negative is 0":         {[]string{"second"}, -time.Second, "", 0, 0},
		"until the end":         {[]string{"second"}, time.Minute, "", time.Second, 1},
		"no longer than asked":  {[]string{"deaf"}, time.Minute, "", time.Minute, 0},
		"any":                   {[]string{"deaf", "second", "deaf"}, time.Minute, UntilAny, time.Second, 1},
		"any, one is done":      {[]string{"deaf", "echo"}, time.Minute, UntilAny, 0, 1},
		"all":                   {[]string{"second", "echo", "second"}, time.Minute, UntilAll, time.Second, 3},
		"all, not all end":      {[]string{"second", "deaf"}, time.Minute, UntilAll, time.Minute, 1},
		"9999 s are cut to 540": {[]string{"undead"}, 9999 * time.Second, "", 540 * time.Second, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newManager(t, Config{})
			var ids []string
			for _, tool := range c.tools {
				ids = append(ids, spawned(t, m, alice, tool))
			}
			began := time.Now()
			checked, err := m.Check(t.Context(), alice, CheckRequest{IDs: ids, Wait: c.wait, Until: c.until})
			require.NoError(t, err)
			require.Equal(t, c.took, time.Since(began))
			done := 0
			for i, report := range checked.Reports {
				require.Equal(t, ids[i], report.ID)
				require.InDelta(t, c.took.Seconds(), checked.Waited.Seconds(), 0.1)
				if report.Final() {
					done++
				}
			}
			require.Equal(t, c.done, done)
			for _, id := range ids {
				_, err := m.Stop(t.Context(), alice, id, StopRequest{Force: true})
				require.NoError(t, err)
			}
			time.Sleep(time.Hour)
		})
	}
}

// A run that ends while its record is being read is not returned as running.
func TestLookupRacesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chunks := make(chan string)
		store := hooked(nil)
		m := newManager(t, Config{Engine: store, Executor: feed(chunks)})
		id := spawned(t, m, alice, "tool")
		store.after = onFirst("get", func() {
			close(chunks)
			synctest.Wait()
		})
		require.Equal(t, engine.StatusSucceeded, must(m.Get(t.Context(), alice, id)).Status)
	})
}

// A run that is purged while a check waits for another one is still reported as it was
// found, but its result is gone.
func TestCheckOfARunThatGoesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{RetainRuns: 1, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			if run.Tool == "sleep" {
				time.Sleep(3 * time.Minute)
			}
			return Outcome{Result: json.RawMessage(`{"n":4}`)}, nil
		}, MaxTimeout: time.Hour, Timeout: time.Hour})
		ended, sleeps := spawned(t, m, alice, "echo"), spawned(t, m, alice, "sleep")
		require.NoError(t, m.Acknowledge(t.Context(), alice, []string{ended}))
		time.AfterFunc(30*time.Second, func() { spawn(t, m, alice, "echo") })
		c, err := m.Check(t.Context(), alice, CheckRequest{IDs: []string{sleeps, ended}, Until: UntilAll, Wait: 5 * time.Minute})
		require.NoError(t, err)
		require.Len(t, c.Reports, 2, "what was found terminal does not change")
		_, err = m.Payload(t.Context(), alice, ended, engine.PartResult)
		require.ErrorIs(t, err, engine.ErrNotFound, "and its result went with its record")
	})
}

// A run whose record is purged while it is being shown is shown as it was read, without
// its log.
func TestCheckOfARunThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logless := hooked(func(method string) error {
			if method == "tail" {
				return engine.ErrNotFound
			}
			return nil
		})
		m := newManager(t, Config{Engine: logless, Executor: func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			_, err := sink.Stdout().Write([]byte("some words\n"))
			return Outcome{Result: json.RawMessage(`{"n":4}`)}, err
		}})
		id := spawned(t, m, alice, "echo")
		synctest.Wait()
		c, err := m.Check(t.Context(), alice, CheckRequest{IDs: []string{id}})
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, c.Reports[0].Status)
		require.Empty(t, c.Reports[0].Output.Text)
		require.EqualValues(t, 11, c.Reports[0].Output.OmittedBytes)
	})
}

func TestContextFreesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		ids := []string{spawned(t, m, alice, "sleep"), spawned(t, m, alice, "sleep")}
		for _, until := range []Until{UntilAny, UntilAll} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			_, err := m.Check(ctx, alice, CheckRequest{IDs: ids, Wait: time.Minute, Until: until})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err = awaited(ctx, m, alice, ids, until)
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// feed returns an executor that writes the chunks it receives, and ends when the
// channel is closed.
func feed(chunks <-chan string) Executor {
	return func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
		for chunk := range chunks {
			_, _ = sink.Stdout().Write([]byte(chunk))
		}
		return Outcome{}, nil
	}
}

// The output adds up to the whole log when it is read in pieces of any size, both while
// it is written and afterwards.
func TestCursorReadsTheWholeLog(t *testing.T) {
	for _, chars := range []int{1, 3, 7, 100, MaxChars} {
		bubble(t, fmt.Sprint(chars), func(t *testing.T) {
			chunks := make(chan string)
			m := newManager(t, Config{Executor: feed(chunks)})
			id := spawned(t, m, alice, "tool")
			var whole, got strings.Builder
			at := "1:0"
			read := func() bool {
				report := check(t, m, alice, CheckRequest{IDs: []string{id}, Cursor: at, MaxChars: chars})
				require.LessOrEqual(t, len([]rune(report.Output.Text)), chars)
				require.Zero(t, report.Output.OmittedBytes)
				got.WriteString(report.Output.Text)
				more := report.Output.Cursor != at
				at = report.Output.Cursor
				return more
			}
			for _, chunk := range []string{"plain\n", "ä", "\xf0\x9f", "\x98\x80 smile\n", "\x1b[3", "1mred\x1b[0", "m\n", "\x1b]0;title", "\aend", "\n", "\xc3"} {
				chunks <- chunk
				whole.WriteString(chunk)
				synctest.Wait()
				read()
			}
			close(chunks)
			wait(t, m, alice, id)
			for read() {
			}
			require.Equal(t, "plain\nä😀 smile\nred\nend\n\uFFFD", got.String())
			require.Equal(t, output.Clean([]byte(whole.String())), got.String())
		})
	}
}

func TestCursorAfterTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chunks := make(chan string)
		m := newManager(t, Config{Executor: feed(chunks), OutputCap: 400})
		id := spawned(t, m, alice, "tool")
		for i := range 100 {
			chunks <- fmt.Sprintf("line %03d\n", i) // 900 bytes: head 0-299, tail 800-899
		}
		synctest.Wait()
		look := func(cursor string, chars int) output.Excerpt {
			out := *check(t, m, alice, CheckRequest{IDs: []string{id}, Cursor: cursor, MaxChars: chars}).Output
			out.LastOutputAt = time.Time{}
			return out
		}
		for range 2 { // while it runs, and from the engine afterwards
			first := look("", 0)
			require.Equal(t, "1:900", first.Cursor)
			require.True(t, strings.HasPrefix(first.Text, "line 089\n"), "at the beginning of a line")
			require.EqualValues(t, 801, first.OmittedBytes)

			require.Equal(t, output.Excerpt{Text: "line 097\nline 098\nline 099\n", Cursor: "1:900", OmittedBytes: 873}, look("", 30))
			head := look("1:9", 0)
			require.True(t, strings.HasPrefix(head.Text, "line 001\n"))
			require.Equal(t, "1:300", head.Cursor)
			require.EqualValues(t, 600, head.PendingBytes)
			require.Zero(t, head.OmittedBytes)
			tail := look("1:300", 0)
			require.EqualValues(t, 500, tail.OmittedBytes)
			require.Equal(t, "1:900", tail.Cursor)
			require.Len(t, tail.Text, 100)
			require.Equal(t, output.Excerpt{Text: "\nline ", Cursor: "1:806", OmittedBytes: 400, PendingBytes: 94}, look("1:400", 6))
			require.Equal(t, output.Excerpt{Cursor: "1:900"}, look("1:900", 0), "never the same byte twice")
			require.Equal(t, output.Excerpt{Cursor: "1:900"}, look("1:99999", 0))
			old := look("7:5", 4)
			require.Equal(t, "line", old.Text)
			require.Equal(t, "attempt 1 has begun; its output starts here", old.Note)
			if chunks != nil {
				close(chunks)
				chunks = nil
				wait(t, m, alice, id)
			}
		}
		require.Nil(t, check(t, m, alice, CheckRequest{IDs: []string{id}, MaxChars: -1}).Output)
	})
}

func TestCheckingAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fuel int64
		steps := make(chan func(*output.Sink))
		m := newManager(t, Config{Executor: feed2(steps)})
		id := spawned(t, m, alice, "tool")
		repeated := func(req CheckRequest) bool {
			req.IDs = []string{id}
			return check(t, m, alice, req).Repeated
		}
		steps <- func(s *output.Sink) {
			s.Meter(func() engine.Cost { fuel++; return engine.Cost{Fuel: fuel} }) // which is nothing new
		}
		require.False(t, repeated(CheckRequest{}))
		require.False(t, repeated(CheckRequest{}))
		require.False(t, repeated(CheckRequest{Peek: true}), "an operator's checks do not count")
		require.True(t, repeated(CheckRequest{}), "the third")
		require.True(t, repeated(CheckRequest{}))
		steps <- writes("new")
		synctest.Wait()
		require.False(t, repeated(CheckRequest{}), "something is new")
		require.False(t, repeated(CheckRequest{}))
		time.Sleep(11 * time.Second)
		require.False(t, repeated(CheckRequest{}), "not within 10 s")
		require.False(t, repeated(CheckRequest{Wait: 5 * time.Second}))
		require.False(t, repeated(CheckRequest{Wait: 9 * time.Second}), "waiting is what it should do")
		close(steps)
	})
}
