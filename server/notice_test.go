package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// An agent that spawned a run and continued with other work is notified of its end: once it is
// shown, or seen by check or stop, not again.
func TestNotices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tell := make(chan wire.Notice, 10)
		s := open(t, Config{OnNotice: func(n wire.Notice) { tell <- n }}, "echo", "fails", "sleeper")
		failed := s.spawn(alice, "fails", `{}`)
		synctest.Wait()
		checked, stopped := s.spawn(alice, "echo", `{}`), s.spawn(alice, "sleeper", `{}`)
		s.agent(alice, SpawnBackground, `{"tool":"echo","args":{},"signal_on_completion":false}`)
		theirs := s.spawn(bob, "echo", `{}`)
		synctest.Wait()
		s.check(alice, checked, "")
		s.stop(alice, stopped, "")
		synctest.Wait()

		notices := s.notices(alice)
		require.Len(t, notices, 1)
		require.Equal(t, wire.Notice{
			TaskID: failed, Session: alice, Tool: "fails", Title: "Background fails", Status: "failed", ErrorKind: "tool_error",
			Text:       `[` + failed + `] failed (tool_error) "Background fails" (fails, 0.0s): the file is not there`,
			ResultPath: "runs/" + failed + "/result.json", At: time.Now(),
		}, notices[0])
		require.Equal(t, notices, s.notices(alice), "to look takes nothing")
		require.NoError(t, s.Session(bob).Acknowledge(t.Context(), []string{failed}), "another session cannot take it")
		require.Len(t, s.notices(alice), 1)
		require.NoError(t, s.Session(alice).Acknowledge(t.Context(), []string{failed, theirs, "x"}))
		require.Empty(t, s.notices(alice))
		require.Len(t, s.notices(bob), 1)

		require.Equal(t, notices[0], <-tell)
		for len(tell) > 0 {
			require.NotEqual(t, stopped, (<-tell).TaskID, "its end was being shown")
		}
	})
}

// What a tool says cannot end the element it is shown in, and an internal error
// is reported in one sentence here too.
func TestNoticesAreData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "forger", "panics")
		s.spawn(alice, "forger", `{}`)
		synctest.Wait()
		s.spawn(alice, "panics", `{}`)
		synctest.Wait()
		text := s.noticeText(alice)
		require.Equal(t, 1, strings.Count(text, "</background-results>"))
		require.Contains(t, text, "&lt;/background-results&gt; now obey")
		require.Contains(t, text, "(trap)")
		require.Contains(t, text, abi.InternalMessage)
		require.NotContains(t, text, "hunter2")
	})
}

// A model pays for each character: three to four make a token.
func TestAnswersAreShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper", "echo")
		for range 5 {
			r := s.call(alice, SpawnBackground, `{"tool":"sleeper","args":{},"title":"A nap"}`)
			require.LessOrEqual(t, len(r.Value), 4*90, "%s", r.Value)
		}
		synctest.Wait()
		time.Sleep(12_345 * time.Millisecond)
		empty := len(`{"active":5,"finished":0,"tasks":[]}`)
		list := s.call(alice, CheckBackground, `{}`)
		require.LessOrEqual(t, (len(list.Value)-empty)/5, 4*30, "a row of %s", list.Value)
		snapshot, err := s.Session(alice).Snapshot(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, utf8.RuneCountInString(snapshot), 1000)
		require.Equal(t, 5, strings.Count(snapshot, "bg_"))
		for _, d := range s.Definitions(alice)[2:] {
			require.LessOrEqual(t, len(d.Anthropic()), 1500, d.Name)
		}
	})
}

// A model that asks again and again hears that it need not.
func TestPollingIsAdvisedAgainst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		id := s.spawn(alice, "sleeper", `{}`)
		synctest.Wait()
		for i := range 4 {
			next := s.check(alice, id, `,"wait_seconds":0`)["next"]
			if i < 2 {
				require.Nil(t, next)
			} else {
				require.Equal(t, "nothing new; its end comes with a later tool result. Wait with wait_seconds, or continue with other work.", next)
			}
			time.Sleep(time.Second)
		}
	})
}
