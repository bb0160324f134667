package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/wire"
)

// settings are settings for tests: they say how models discover tools.
type settings catalog.Listings

func (s settings) Rules() catalog.Rules {
	return catalog.NewRules(catalog.Terms{Park: catalog.ParkHinted})
}
func (s settings) Listings() catalog.Listings          { return catalog.Listings(s) }
func (s settings) Approval(*catalog.Tool) abi.Approval { return abi.ApprovalAuto }

// records are the records of all sessions.
type records struct {
	runs      []engine.Run
	schedules []engine.Schedule
	err       error
}

func (r records) List(_ context.Context, q engine.Query) ([]engine.Run, error) {
	found := slices.DeleteFunc(slices.Clone(r.runs), func(run engine.Run) bool {
		return q.Filter.Tool != "" && run.Tool != q.Filter.Tool || q.Active && run.Status.Terminal()
	})
	return found, r.err
}

func (r records) Schedules(context.Context, string) ([]engine.Schedule, error) {
	return r.schedules, r.err
}

// newTools returns the agent's tools next to tools of a program, which the names of hints stand for.
func newTools(t testing.TB, s settings, r records, tools map[string]abi.Hints) *Tools {
	t.Helper()
	var all []gotool.Tool
	for name, hints := range tools {
		all = append(all, gotool.Tool{Name: name, Description: "For tests.", Hints: hints, Handler: gotool.Handle(
			func(context.Context, *gotool.Call, struct{}) (gotool.None, error) { return gotool.None{}, nil })})
	}
	program, err := catalog.NewProgram(gotool.Config{}, Names, all)
	require.NoError(t, err)
	registry, err := plugins.Open(t.Context(), nil, plugins.Config{Taken: program.Names(), Attached: s})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, program.Close(context.Background()))
		require.NoError(t, registry.Close(context.Background()))
	})
	a, err := New(catalog.New(registry, program), r)
	require.NoError(t, err)
	return a
}

var (
	plain  = abi.Hints{}
	spawns = abi.Hints{SupportsBackground: true}
	reads  = abi.Hints{SupportsBackground: true, Messages: true}
)

// session is one session, in memory. It notes what it is asked for.
type session struct {
	spawned   background.SpawnRequest
	scheduled background.ScheduleRequest
	checked   []background.CheckRequest
	stopped   wire.Stop
	sent      json.RawMessage
	disabled  string

	runs      []engine.Run
	schedules []wire.Schedule
	questions map[string]abi.Question
	report    func(r *background.Report) // changes what a check finds; nil: nothing
	result    json.RawMessage            // of a run that is stopped
	err       error
}

func (s *session) Spawn(_ context.Context, req background.SpawnRequest) (wire.Run, error) {
	s.spawned = req
	return wire.Run{TaskID: "bg_1", Tool: req.Tool, Title: "A title", Status: wire.StatusRunning, DeadlineSeconds: 300}, s.err
}

func (s *session) NewSchedule(_ context.Context, req background.ScheduleRequest) (wire.Schedule, error) {
	s.scheduled = req
	return wire.Schedule{ScheduleID: "sched_1", Tool: req.Tool, Title: "A title", NextTriggerAt: req.At}, s.err
}

func (s *session) Run(_ context.Context, id string) (wire.Run, error) {
	return wire.Run{TaskID: id, Status: wire.StatusRunning}, s.err
}

func (s *session) Runs(context.Context) ([]engine.Run, error) { return s.runs, s.err }

func (s *session) Check(_ context.Context, r background.CheckRequest) (background.CheckResult, error) {
	s.checked = append(s.checked, r)
	out := background.CheckResult{Waited: r.Wait}
	for _, run := range s.runs {
		if slices.Contains(r.IDs, run.ID) {
			report := background.Report{Run: run}
			if s.report != nil {
				s.report(&report)
			}
			out.Reports = append(out.Reports, report)
		}
	}
	return out, s.err
}

func (s *session) Questions(context.Context, engine.Run) map[string]abi.Question { return s.questions }

func (s *session) Asking(_ context.Context, suspended []engine.Run) (ids []string) {
	for _, r := range suspended {
		if len(s.questions) > 0 && r.Status == engine.StatusWaiting {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func (s *session) Stop(_ context.Context, id, _ string, how wire.Stop) (wire.Stopped, error) {
	s.stopped = how
	return wire.Stopped{TaskID: id, Status: wire.StatusCanceled, Stopped: true, Result: s.result}, s.err
}

func (s *session) Send(_ context.Context, _, _ string, message json.RawMessage) (wire.Message, error) {
	s.sent = message
	return wire.Message{ID: 7}, s.err
}

func (s *session) Schedule(_ context.Context, id string) (wire.Schedule, error) {
	for _, one := range s.schedules {
		if one.ScheduleID == id {
			return one, nil
		}
	}
	return wire.Schedule{}, background.ErrNoSchedule
}

func (s *session) Schedules(context.Context) ([]wire.Schedule, error) { return s.schedules, s.err }

func (s *session) DisableSchedule(_ context.Context, id string) (wire.Schedule, error) {
	s.disabled = id
	return wire.Schedule{ScheduleID: id}, s.err
}

// call calls one of the tools, which models see.
func call(t testing.TB, s Session, name, args string, c Call) (abi.Result, error) {
	t.Helper()
	a := newTools(t, nil, records{}, map[string]abi.Hints{"reads": reads, catalog.Exec: plain})
	var err error
	c.Args, err = catalog.ParseArgs(name, catalog.Args{}, json.RawMessage(args))
	require.NoError(t, err)
	c.File = func(r engine.Run, name string) string { return r.ID + "/" + name }
	tool := a.Lookup(name)
	require.NotNil(t, tool)
	return tool.Call(t.Context(), s, c)
}

// answer calls a tool that answers, and returns the answer as an agent gets it.
func answer(t testing.TB, s Session, name, args string) string {
	t.Helper()
	r, err := call(t, s, name, args, Call{})
	require.NoError(t, err)
	require.Equal(t, abi.Success, r.Kind, r.Error)
	return string(r.Value)
}

// refusal calls a tool that answers with an error, and returns its text.
func refusal(t testing.TB, s Session, name, args string) string {
	t.Helper()
	r, err := call(t, s, name, args, Call{})
	require.NoError(t, err)
	require.Equal(t, abi.ToolError, r.Kind, string(r.Value))
	return r.Error
}

// What is wrong with a call is said to the agent. What is wrong with the host is not.
func TestCallErrors(t *testing.T) {
	s := &session{}
	require.Equal(t, "check_background needs a session, and this call has none", refusal(t, nil, CheckBackground, `{}`))
	require.Contains(t, refusal(t, s, CheckBackground, `{"until":"never"}`), "the arguments of check_background do not fit its schema: /until: ")
	require.Equal(t, "wait_seconds: the number is out of range", refusal(t, s, CheckBackground, `{"task_id":"a","wait_seconds":1e350}`))
	require.Contains(t, answer(t, nil, ToolsSearch, `{"query":"exec"}`), `"name":"exec"`, "a search needs no session")

	s.err = fmt.Errorf("%w: \"prime\"", plugins.ErrNoTool)
	require.Contains(t, refusal(t, s, SpawnBackground, `{"tool":"prime","args":{}}`), "prime")
	s.err = errors.New("the disk is on fire")
	r, err := call(t, s, CheckBackground, `{}`, Call{})
	require.ErrorIs(t, err, s.err)
	require.Equal(t, abi.InternalMessage, r.Error)
}

func TestMessage(t *testing.T) {
	for sent, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, `"text"`: `"text"`, `" {\"a\":1} "`: `{"a":1}`, `"[1]"`: `"[1]"`,
	} {
		s := &session{}
		require.Equal(t, `{"task_id":"bg_1","status":"running","message_id":7}`, answer(t, s, MessageBackground, `{"task_id":" bg_1 ","message":`+sent+`}`))
		require.Equal(t, want, string(s.sent), sent)
	}
	require.Contains(t, refusal(t, &session{}, MessageBackground, `{"task_id":"bg_1","message":"{\"a\":1,\"a\":2}"}`), "a", "an object in a string is parsed strictly")
}

func TestSpawn(t *testing.T) {
	s := &session{}
	require.Equal(t, `{"task_id":"bg_1","status":"running"}`, answer(t, s, SpawnBackground, `{"tool":"reads","args":{"n":1},"title":"T","timeout_seconds":1e300,"idempotency_key":"k","signal_on_completion":false}`))
	require.Equal(t, background.SpawnRequest{
		Tool: "reads", Args: json.RawMessage(`{"n":1}`), Title: "T", Timeout: 1e9 * time.Second, IdempotencyKey: "k", Silent: true,
	}, s.spawned)

	r, err := call(t, s, SpawnBackground, `{"tool":"reads","args":{}}`, Call{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, `{"task_id":"bg_1","status":"running","dry_run":true,"tool":"reads","title":"A title","deadline_seconds":300}`, string(r.Value))
}

func TestSpawnLater(t *testing.T) {
	s := &session{}
	require.Equal(t, `{"status":"scheduled","schedule_id":"sched_1","next_trigger_at":"2030-01-02T15:04:05Z"}`,
		answer(t, s, SpawnBackground, `{"tool":"reads","args":{},"schedule":{"scheduled_at":" 2030-01-02T15:04:05Z "}}`))
	answer(t, s, SpawnBackground, `{"tool":"reads","args":{},"schedule":{"cron_expression":" 0 * * * * ","timezone":" UTC ","scheduled_at":""}}`)
	require.Equal(t, background.ScheduleRequest{SpawnRequest: background.SpawnRequest{Tool: "reads", Args: json.RawMessage(`{}`)}, Cron: "0 * * * *", Timezone: "UTC"}, s.scheduled)

	for schedule, want := range map[string]string{
		`{}`: "schedule: must include exactly one of",
		`{"cron_expression":"* * * * *","scheduled_at":"2030-01-02T15:04:05Z"}`: "schedule: must not include both",
		`{"scheduled_at":"tomorrow"}`:                                           `scheduled_at: must be RFC 3339, such as 2026-01-02T15:04:05Z, and is "tomorrow"`,
	} {
		require.Contains(t, refusal(t, s, SpawnBackground, `{"tool":"reads","args":{},"schedule":`+schedule+`}`), want)
	}
	require.Equal(t, "tool: required", refusal(t, s, SpawnBackground, `{"tool":" ","args":{},"schedule":{}}`), "first what it named")
}

func TestStop(t *testing.T) {
	s := &session{schedules: []wire.Schedule{{ScheduleID: "sched_1", Enabled: true}, {ScheduleID: "sched_2"}}}
	require.Equal(t, `{"task_id":"bg_1","status":"canceled","stopped":true}`, answer(t, s, StopBackground, `{"task_id":"bg_1","force":true,"reason":"late"}`))
	require.Equal(t, wire.Stop{Force: true, Reason: "late"}, s.stopped)
	s.result, _ = json.Marshal(string(make([]byte, maxInline)))
	require.Contains(t, answer(t, s, StopBackground, `{"task_id":"bg_1"}`), `"stopped":true,"result_bytes":49154,"result_preview":`)

	require.Equal(t, `{"schedule_id":"sched_1","status":"disabled","stopped":true}`, answer(t, s, StopBackground, `{"schedule_id":"sched_1"}`))
	require.Equal(t, "sched_1", s.disabled)
	require.Equal(t, `{"schedule_id":"sched_2","status":"disabled","stopped":false,"already_finished":true}`, answer(t, s, StopBackground, `{"schedule_id":"sched_2"}`))
	require.Contains(t, refusal(t, s, StopBackground, `{"schedule_id":"other"}`), ": other; active: sched_1")

	s.disabled = ""
	r, err := call(t, s, StopBackground, `{"schedule_id":"sched_1"}`, Call{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, `{"schedule_id":"sched_1","status":"enabled","stopped":false,"dry_run":true}`, string(r.Value))
	require.Empty(t, s.disabled)

	require.Equal(t, "task_id: give a task_id, or a schedule_id", refusal(t, s, StopBackground, `{}`))
	require.Equal(t, "schedule_id: give either task_id or schedule_id", refusal(t, s, StopBackground, `{"task_id":"a","schedule_id":"b"}`))
}
