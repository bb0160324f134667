package server

import (
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/wire"
)

// newRun is a run as transports show it in a list: without its arguments, its
// result and its content.
func newRun(r engine.Run, now time.Time) wire.Run {
	run := wire.Run{
		TaskID: r.ID, Session: r.Session, Tool: r.Tool, ToolVersion: r.Version, Title: r.Title, ArgsIncomplete: r.Secret,
		Origin: wire.Origin(r.Origin), By: r.By, Status: wire.Status(r.Status), Done: r.Final(), Unsaved: r.Unsaved, Attempt: r.Attempt,
		Detail:    r.Detail,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, ParkedAt: r.ParkedAt, FinishedAt: r.FinishedAt,
		ElapsedSeconds: tenths(r.Elapsed(now)), DeadlineSeconds: r.Timeout.Seconds(),
		OutputBytes: r.OutputBytes, LastOutputAt: r.LastOutputAt,
		ExitCode: r.ExitCode, Error: newRunError(r.Error), Summary: r.Summary, ArtifactError: r.ArtifactError,
		SignalOnCompletion: r.SignalOnCompletion, Notice: wire.NoticeState(r.Notice), IdempotencyKey: r.IdempotencyKey,
		ScheduleID: r.Schedule, ScheduledFor: r.ScheduledFor,
		LogPath: r.Path(engine.OutputLog), ResultPath: r.Path(engine.ResultJSON),
	}

	if r.Cancel != nil {
		run.Stopping = &wire.Stopping{At: r.Cancel.At, By: r.Cancel.By, Reason: r.Cancel.Reason}
	}
	if r.Progress != nil {
		run.Progress = &wire.Progress{Done: r.Progress.Done, Total: r.Progress.Total, Message: r.Progress.Message}
	}
	return run
}

// newWholeRun is a run with its arguments, its result and its content.
func newWholeRun(r engine.Run, now time.Time) wire.Run {
	run := newRun(r, now)
	run.Args, run.Result, run.Content = background.Redact(r.Args), r.Result, blocks(r.Content)
	return run
}

func newRunError(e *engine.RunError) *wire.RunError {
	if e == nil {
		return nil
	}
	return &wire.RunError{Kind: wire.ErrorKind(e.Kind), Message: e.Message}
}

// blocks reads the content that the record of a run keeps besides its result.
func blocks(content json.RawMessage) []abi.Block {
	var all []abi.Block
	if json.Unmarshal(content, &all) != nil { // there is none, or no tool wrote it
		return nil
	}
	return all
}

func newExcerpt(r *output.Page) *wire.Excerpt {
	if r == nil {
		return nil
	}
	return &wire.Excerpt{
		Text: r.Text, Cursor: r.Cursor, OmittedBytes: r.OmittedBytes, PendingBytes: r.PendingBytes, LastOutputAt: r.LastOutputAt, Note: r.Note,
	}
}

func newStopped(s background.StopResult) wire.Stopped {
	return wire.Stopped{
		TaskID: s.TaskID, Status: wire.Status(s.Status), Stopped: s.Stopped, AlreadyFinished: s.AlreadyFinished, Stopping: s.Stopping,
		Unsaved: s.Unsaved, Next: s.Next, Result: s.Result, Content: s.Content, Error: newRunError(s.Error),
	}
}

// newSchedule is a schedule as transports show it in a list: without its
// arguments.
func newSchedule(s engine.Schedule) wire.Schedule {
	return wire.Schedule{
		ScheduleID: s.ID, Session: s.Session, Tool: s.Tool, ToolVersion: s.Version, Title: s.Title,
		SignalOnCompletion: s.SignalOnCompletion, DeadlineSeconds: s.Timeout.Seconds(),
		Cron: s.Cron, At: s.At, Timezone: s.Timezone, Overlap: wire.Overlap(s.Overlap),
		Enabled: s.Enabled, DisabledReason: s.Disabled, CreatedAt: s.CreatedAt,
		NextTriggerAt: s.NextAt, LastTriggeredAt: s.LastAt, LastTaskID: s.LastRun,
		TriggerCount: s.Fired, RejectedInARow: s.Rejected,
	}
}

// newWholeSchedule is a schedule with its arguments.
func newWholeSchedule(s engine.Schedule) wire.Schedule {
	out := newSchedule(s)
	out.Args = background.Redact(s.Args)
	return out
}

func newNotice(n background.Notice) wire.Notice {
	return wire.Notice{
		TaskID: n.ID, Session: n.Session, Tool: n.Tool, Title: n.Title, Status: wire.Status(n.Status), ErrorKind: wire.ErrorKind(n.ErrorKind),
		ElapsedSeconds: n.ElapsedSeconds, ExitCode: n.ExitCode, Text: n.Text, ResultPath: n.ResultPath, At: n.At,
	}
}

func newEvent(e engine.Event, now time.Time) wire.Event {
	out := wire.Event{Kind: wire.EventKind(e.Kind)}
	if e.Run != nil {
		run := newRun(*e.Run, now)
		out.Run = &run
	}
	if e.Schedule != nil {
		schedule := newSchedule(*e.Schedule)
		out.Schedule = &schedule
	}
	return out
}

func tenths(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)/(100*time.Millisecond)) / 10
}
