package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/wire"
)

// newRun is a run that began a minute ago.
func newRun(id string, status engine.Status) engine.Run {
	now := time.Now()
	r := engine.Run{ID: id, Tool: "reads", Title: "Read", Status: status, CreatedAt: now, StartedAt: now.Add(-time.Minute), Timeout: 5 * time.Minute}
	if status.Terminal() {
		r.FinishedAt = now
	}
	return r
}

// The report of a run has what an agent needs next, and no more.
func TestReport(t *testing.T) {
	long, _ := json.Marshal(strings.Repeat("x", maxInline))
	const head = `{"task_id":"bg_1","tool":"reads","title":"Read","status":`
	for name, test := range map[string]struct {
		status    engine.Status
		report    func(r *background.Report)
		questions map[string]abi.Question
		args      string
		call      Call
		want      string // the rest of the report
	}{
		"running":           {engine.StatusRunning, nil, nil, ``, Call{}, `"running","elapsed_seconds":60,"done":false,"waited_seconds":60,"deadline_in_seconds":240}`},
		"it does not wait":  {engine.StatusRunning, nil, nil, `,"wait_seconds":0`, Call{}, `"running","elapsed_seconds":60,"done":false,"deadline_in_seconds":240}`},
		"the longest wait":  {engine.StatusRunning, nil, nil, `,"wait_seconds":1e300`, Call{}, `"running","elapsed_seconds":60,"done":false,"waited_seconds":540,"deadline_in_seconds":240,"next":"still running after 540 seconds, the longest wait here: check again to wait longer"}`},
		"the caller's wait": {engine.StatusRunning, nil, nil, ``, Call{MaxWait: 5 * time.Second}, `"running","elapsed_seconds":60,"done":false,"waited_seconds":5,"deadline_in_seconds":240,"next":"still running after 5 seconds, the longest wait here: check again to wait longer"}`},
		"nothing new":       {engine.StatusRunning, func(r *background.Report) { r.Repeated, r.SignalOnCompletion = true, true }, nil, `,"wait_seconds":0`, Call{}, `"running","elapsed_seconds":60,"done":false,"deadline_in_seconds":240,"next":"nothing new; its end comes with a later tool result. Wait with wait_seconds, or continue with other work."}`},
		"nothing, unnamed":  {engine.StatusRunning, func(r *background.Report) { r.Repeated, r.SignalOnCompletion = true, true }, nil, `,"wait_seconds":0`, Call{Unnamed: true}, `"running","elapsed_seconds":60,"done":false,"deadline_in_seconds":240,"next":"nothing new. Wait with wait_seconds, or continue with other work."}`},
		"held":              {engine.StatusQueued, func(r *background.Report) { r.Held = "approval" }, nil, `,"wait_seconds":0`, Call{}, `"queued","elapsed_seconds":60,"done":false,"next":"a person has to approve it, and you cannot: continue with other work, or tell your user","waiting_for_input":["a person's approval"]}`},
		"it asks":           {engine.StatusWaiting, nil, map[string]abi.Question{"b": {Message: "B\n?"}, "a": {Message: "A?"}}, `,"wait_seconds":0`, Call{}, `"waiting","elapsed_seconds":60,"done":false,"next":"it waits for your user to answer: ask them to, you cannot answer for them","waiting_for_input":["A?","B ?"]}`},
		"a result": {engine.StatusSucceeded, func(r *background.Report) {
			r.Result, r.Detail, r.Output = json.RawMessage(`"<b>"`), "working", &output.Excerpt{Text: "o"}
		}, nil, `,"wait_seconds":0`, Call{}, `"succeeded","elapsed_seconds":60,"done":true,"result":"<b>"}`},
		"output is asked for": {engine.StatusSucceeded, func(r *background.Report) {
			r.Result, r.Output = json.RawMessage(`1`), &output.Excerpt{Text: "o", Cursor: "1:1", OmittedBytes: 5}
		}, nil, `,"wait_seconds":0,"max_chars":1`, Call{}, `"succeeded","elapsed_seconds":60,"done":true,"output":{"text":"o","cursor":"1:1","omitted_bytes":5},"result":1,"log_path":"bg_1/output.log"}`},
		"a failure": {engine.StatusFailed, func(r *background.Report) { r.Error = &engine.RunError{Kind: engine.KindToolError, Message: "no file"} }, nil, `,"wait_seconds":0`, Call{}, `"failed","elapsed_seconds":60,"done":true,"error":{"kind":"tool_error","message":"no file"}}`},
		"too large": {engine.StatusSucceeded, func(r *background.Report) { r.Result = long }, nil, `,"wait_seconds":0`, Call{},
			fmt.Sprintf(`"succeeded","elapsed_seconds":60,"done":true,"result_path":"bg_1/result.json","next":"check this task alone with max_chars 16384 for the whole result","result_bytes":%d,"result_preview":%q}`, len(long), string(long[:1024]))},
		"as large as is asked for": {engine.StatusSucceeded, func(r *background.Report) { r.Result = long }, nil, `,"wait_seconds":0,"max_chars":16384`, Call{}, `"succeeded","elapsed_seconds":60,"done":true,"result":` + string(long) + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &session{runs: []engine.Run{newRun("bg_1", test.status)}, report: test.report, questions: test.questions}
				r, err := call(t, s, CheckBackground, `{"task_id":"bg_1"`+test.args+`}`, test.call)
				require.NoError(t, err)
				require.JSONEq(t, head+test.want, string(r.Value))
			})
		})
	}
}

// The list has the active runs, and those that ended within the last hour.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{}
		require.Equal(t, `{"active":0,"finished":0,"tasks":[]}`, answer(t, s, CheckBackground, `{}`))
		r, err := call(t, s, CheckBackground, `{}`, Call{Unnamed: true})
		require.NoError(t, err)
		require.Equal(t, `{"tasks":[],"next":"your runs are not listed here: find them by their task_ids only"}`, string(r.Value))

		s.runs = []engine.Run{newRun("new", engine.StatusRunning), newRun("asks", engine.StatusWaiting), newRun("ended", engine.StatusSucceeded), newRun("old", engine.StatusFailed)}
		s.runs[3].FinishedAt = time.Now().Add(-time.Hour - time.Second)
		s.questions = map[string]abi.Question{"a": {}}
		s.schedules = []wire.Schedule{{ScheduleID: "sched_1", Title: strings.Repeat("t", 100), Enabled: true}, {ScheduleID: "sched_2"}}
		ids := func(args string) (ids []string) {
			var got struct {
				Active, Finished, More int
				Tasks                  []struct {
					ID string `json:"task_id"`
				}
				Schedules []map[string]string
				Awaiting  []string `json:"waiting_for_input"`
			}
			require.NoError(t, json.Unmarshal([]byte(answer(t, s, CheckBackground, args)), &got))
			require.Equal(t, []int{2, len(s.runs) - 2}, []int{got.Active, got.Finished})
			require.Equal(t, []string{"asks"}, got.Awaiting)
			require.Equal(t, []map[string]string{{"schedule_id": "sched_1", "title": strings.Repeat("t", maxRowTitle-1) + "…"}}, got.Schedules)
			for _, task := range got.Tasks {
				ids = append(ids, task.ID)
			}
			if got.More > 0 {
				ids = append(ids, fmt.Sprint("and ", got.More))
			}
			return ids
		}
		require.Equal(t, []string{"new", "asks", "ended"}, ids(`{}`))
		require.Equal(t, []string{"new", "asks"}, ids(`{"include_finished":false}`))
		require.Equal(t, []string{"new", "asks", "ended", "old"}, ids(`{"list":true,"include_finished":true,"task_id":"new"}`))
		for range maxRows {
			s.runs = append(s.runs, newRun("more", engine.StatusSucceeded))
		}
		require.Equal(t, "and 3", ids(`{}`)[maxRows])
	})
}

// TestListHeld: the list says which runs wait for a person, however they do.
func TestListHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := newRun("held", engine.StatusQueued)
		held.Held = "approval"
		s := &session{runs: []engine.Run{held, newRun("new", engine.StatusRunning), newRun("asks", engine.StatusWaiting)}, questions: map[string]abi.Question{"a": {}}}
		require.Contains(t, answer(t, s, CheckBackground, `{}`), `"waiting_for_input":["asks","held"]`)
	})
}

// TestListWaits: with wait_seconds, a list waits for the next end of an active run.
func TestListWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{runs: []engine.Run{newRun("new", engine.StatusRunning), newRun("ended", engine.StatusSucceeded)}}
		answer(t, s, CheckBackground, `{}`)
		answer(t, s, CheckBackground, `{"wait_seconds":0}`)
		require.Empty(t, s.checked)

		answer(t, s, CheckBackground, `{"wait_seconds":20}`)
		_, err := call(t, s, CheckBackground, `{"list":true,"wait_seconds":500}`, Call{MaxWait: time.Minute})
		require.NoError(t, err)
		want := background.CheckRequest{IDs: []string{"new"}, Wait: 20 * time.Second, Until: background.UntilAny, MaxChars: -1, Peek: true}
		require.Equal(t, want, s.checked[0])
		require.Equal(t, time.Minute, s.checked[1].Wait)

		s.runs = s.runs[1:]
		answer(t, s, CheckBackground, `{"wait_seconds":20}`)
		require.Len(t, s.checked, 2, "nothing is active")
	})
}

// An answer is bounded, however much room its text takes in JSON. The next check shows the
// output that this one omits.
func TestAnswerIsBounded(t *testing.T) {
	s := &session{runs: []engine.Run{newRun("bg_1", engine.StatusFailed)}}
	s.report = func(r *background.Report) {
		room := s.checked[len(s.checked)-1].MaxChars
		r.Output = &output.Excerpt{Text: strings.Repeat("\u2028", max(room, 0))}
		r.Error = &engine.RunError{Message: strings.Repeat("\x01", maxAnswer)}
	}
	all := answer(t, s, CheckBackground, `{"task_id":"bg_1","max_chars":16384}`)
	require.LessOrEqual(t, utf8.RuneCountInString(all), maxAnswer)
	require.Greater(t, len(s.checked), 1)
	require.Equal(t, background.MaxChars, s.checked[0].MaxChars)
	require.Equal(t, defaultWait, s.checked[0].Wait)
	require.Zero(t, s.checked[1].Wait, "it has waited")
}
