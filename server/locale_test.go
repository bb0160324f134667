package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// A run speaks the language of whoever started it: in its record and in the notice of
// its end.
func TestRunLocale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "teller")
		v := s.Session(alice)
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: json.RawMessage(`{"tool":"teller","args":{"n":7}}`), Locale: "de-CH"})
		require.NoError(t, err)
		var spawned struct {
			TaskID string `json:"task_id"`
		}
		require.NoError(t, json.Unmarshal(r.Value, &spawned))
		again, err := v.Rerun(t.Context(), spawned.TaskID, "")
		require.NoError(t, err)
		_, err = v.Schedules().New(t.Context(), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "teller", Args: json.RawMessage(`{"n":7}`), Locale: "de"}, At: time.Now().Add(2 * time.Second)})
		require.NoError(t, err)
		other := s.spawn(alice, "teller", `{"n":7}`)
		time.Sleep(3 * time.Second)
		synctest.Wait()

		found, err := v.Runs(t.Context(), RunQuery{})
		require.NoError(t, err)
		require.Len(t, found, 4)
		for _, run := range found {
			want := "Erzähle von 7"
			if run.TaskID == other {
				want = "Telling 7 and …"
			}
			require.Equal(t, want, run.Narration, "%s, again %s", run.TaskID, again.TaskID)
		}
	})
}

// The language is in the record, so that a later attempt has it too.
func TestRunLocaleIsKept(t *testing.T) {
	check := func(t *testing.T, first service, again func() service) {
		run, err := first.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "reader", Locale: "de-CH"})
		require.NoError(t, err)
		first.said(alice, run.TaskID, "reading\n")
		second := again()
		second.again(alice, run.TaskID)
		second.said(alice, run.TaskID, "reading\n")
		require.Equal(t, "succeeded", second.stop(alice, run.TaskID, "")["status"])
		var seen abi.Context
		require.NoError(t, json.Unmarshal(second.settled(alice, run.TaskID).Result, &seen))
		require.Equal(t, "de-CH", seen.Locale)
		require.Equal(t, 2, seen.Attempt)
	}
	t.Run("memory", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			cfg := Config{Engine: newProcess()}
			check(t, open(t, cfg, "reader"), func() service { return open(t, restarted(cfg), "reader") })
		})
	})
	t.Run("disk", func(t *testing.T) {
		cfg := Config{DataDir: t.TempDir(), Runs: RunsConfig{Grace: time.Hour}}
		first := open(t, cfg, "reader")
		check(t, first, func() service {
			require.NoError(t, first.Close(done()))
			return open(t, cfg, "reader")
		})
	})
}

func TestCheckLocale(t *testing.T) {
	for _, good := range []string{"", "de", "de-CH", "zh-Hant-TW", "i-klingon", "sl-rozaj-1994"} {
		require.NoError(t, CheckLocale(good), good)
	}
	for _, bad := range []string{"-", "de-", "de_CH", "de CH", "dé", "de\n", strings.Repeat("a", MaxLocale+1), "{n}"} {
		require.ErrorIs(t, CheckLocale(bad), background.ErrInvalid, bad)
	}
	s := open(t, Config{}, "echo")
	_, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "echo", Locale: "de_CH"})
	require.ErrorContains(t, err, "locale")
}

// TestLocaleOfHeldChild: a tool that a script calls, and that a person approves later, writes
// in the language of the call that began it.
func TestLocaleOfHeldChild(t *testing.T) {
	seen := make(chan string, 1)
	wipe := gotool.Tool{Name: "wipe", Description: "Deletes.", Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ scriptText) (string, error) {
		seen <- c.Locale()
		return "done", nil
	})}
	s := openScripts(t, Config{
		Tools:     []gotool.Tool{wipe},
		Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"exec": DecideAllow}},
	})
	_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", Locale: "de-CH", Args: code(`return await tools.wipe({text: "a"})`)})
	require.NoError(t, err)
	held, err := s.Approvals().List(t.Context(), "", 0)
	require.NoError(t, err)
	require.Len(t, held.Approvals, 1)
	_, err = s.Approvals().Decide(t.Context(), held.Approvals[0].TaskID, "operator", wire.Decide{Approve: true})
	require.NoError(t, err)
	require.Equal(t, "de-CH", <-seen)
}
