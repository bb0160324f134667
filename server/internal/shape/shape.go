// Package shape turns records of runs and schedules into the JSON shapes of the transports.
package shape

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// Run returns a run as transports show it, with the parts of the payload that it has.
func Run(r engine.Run, now time.Time) wire.Run {
	run := wire.Run{
		TaskID: r.ID, Session: r.Session, Tool: r.Tool, ToolVersion: r.Version, Title: r.Title, Held: r.Held, ArgsIncomplete: r.Secret,
		Kind: r.Kind, Plugin: r.Plugin, PluginVersion: r.PluginVersion,
		Origin: r.Origin, By: r.By, Status: r.Status, Done: r.Final(), Unsaved: r.Unsaved, Attempt: r.Attempt,
		Detail: r.Detail, Narration: r.Narration, Progress: r.Progress, Cost: Cost(r.Cost),
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, ParkedAt: r.ParkedAt, FinishedAt: r.FinishedAt,
		ElapsedSeconds: Tenths(r.Elapsed(now)), DeadlineSeconds: Deadline(r.Timeout),
		OutputBytes: r.OutputBytes, LastOutputAt: r.LastOutputAt,
		ExitCode: r.ExitCode, Error: r.Error, Summary: r.Summary, ArtifactError: r.ArtifactError,
		SignalOnCompletion: r.SignalOnCompletion, Wake: wire.Wake(r.Wake), Notice: r.Notice, IdempotencyKey: r.IdempotencyKey, Parent: r.Parent,
		ScheduleID: r.Schedule, ScheduledFor: r.ScheduledFor, Result: r.Result, Content: Blocks(r.Content),
		LogPath: r.Path(engine.OutputLog), ResultPath: r.Path(engine.ResultJSON),
	}

	if r.Status == engine.StatusWaiting {
		run.WaitsUntil = r.WakeAt
	}
	if r.Args != nil {
		run.Args = background.Redact(r.Args)
	}
	if r.Cancel != nil {
		run.Stopping = &wire.Stopping{At: r.Cancel.At, By: r.Cancel.By, Reason: r.Cancel.Reason}
	}
	return run
}

// CostOf returns the cost of a call from its usage.
func CostOf(u abi.Usage) engine.Cost {
	return engine.Cost{Fuel: u.Fuel, CPU: u.CPU, Wait: u.Wait, MemoryPeak: u.MemoryPeak}
}

// Cost returns the cost of a run as transports show it; nil if there is none, or if it is
// unknown.
func Cost(c engine.Cost) *wire.Cost {
	if c == (engine.Cost{}) {
		return nil
	}
	return &wire.Cost{Fuel: c.Fuel, CPUSeconds: Micros(c.CPU), WaitSeconds: Micros(c.Wait), MemoryPeak: c.MemoryPeak}
}

// Micros returns a duration in seconds, rounded to microseconds.
func Micros(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

// DiagnosisOf returns why a call failed, for operators; nil if the error adds nothing to
// the result.
func DiagnosisOf(err error) *engine.Diagnosis {
	call, ok := errors.AsType[*host.CallError](err)
	if !ok {
		return nil
	}
	return &engine.Diagnosis{Reason: call.Err.Error(), Trace: call.Trace, LastWords: call.LastWords}
}

// Blocks decodes the content in the record of a run.
func Blocks(content json.RawMessage) []abi.Block {
	var all []abi.Block
	if content == nil || json.Unmarshal(content, &all) != nil { // not written by a tool
		return nil
	}
	return all
}

// TextUnsaved is advice about a run whose end is not stored yet.
const TextUnsaved = "This result is not stored yet (is the disk full?): a crash would lose it. Check again until done is true."

// Stopped returns the outcome of a stop.
func Stopped(r engine.Run) wire.Stopped {
	s := wire.Stopped{
		TaskID: r.ID, Status: r.Status, Stopped: r.Status == engine.StatusCanceled, Stopping: !r.Status.Terminal(),
		Unsaved: r.Unsaved, Error: r.Error, Result: r.Result, Content: r.Content,
	}
	s.AlreadyFinished = !s.Stopped && !s.Stopping
	if r.Unsaved {
		s.Next = TextUnsaved
	}
	return s
}

// Schedule returns a schedule as transports show it, with its arguments if it has them.
func Schedule(s engine.Schedule) wire.Schedule {
	out := wire.Schedule{
		ScheduleID: s.ID, Session: s.Session, Tool: s.Tool, ToolVersion: s.Version, Title: s.Title,
		SignalOnCompletion: s.SignalOnCompletion, Wake: wire.Wake(s.Wake), DeadlineSeconds: Deadline(s.Timeout),
		Cron: s.Cron, At: s.At, Timezone: s.Timezone, Overlap: s.Overlap,
		Enabled: s.Enabled, DisabledReason: s.Disabled, CreatedAt: s.CreatedAt,
		NextTriggerAt: s.NextAt, LastTriggeredAt: s.LastAt, LastTaskID: s.LastRun,
		TriggerCount: s.Fired, RejectedInARow: s.Rejected,
	}
	if out.Type = "cron"; s.Cron == "" {
		out.Type = "once"
	}
	if s.Args != nil {
		out.Args = background.Redact(s.Args)
	}
	return out
}

// Notice returns a notice with the path of the run's log, if logs are kept in a data
// folder.
func Notice(r engine.Run, kept bool) wire.Notice {
	n := wire.Notice{
		TaskID: r.ID, Session: r.Session, Tool: r.Tool, Title: r.Title, Summary: r.Summary, Narration: r.Narration, Status: r.Status, ElapsedSeconds: Tenths(r.Elapsed(r.FinishedAt)),
		ExitCode: r.ExitCode, Text: background.NoticeText(r), ResultPath: r.Path(engine.ResultJSON), At: r.FinishedAt,
	}
	if r.Error != nil {
		n.ErrorKind = r.Error.Kind
	}
	if kept {
		n.LogPath = r.Path(engine.OutputLog)
	}
	return n
}

// Event returns an event as transports show it, without arguments.
func Event(e engine.Event, now time.Time) wire.Event {
	out := wire.Event{Kind: e.Kind}
	if e.Run != nil && e.Kind == engine.EventQueued && e.Run.Held != "" {
		out.Kind = wire.EventHeld
	}
	if e.Run != nil {
		run := Run(*e.Run, now)
		out.Run = &run
	}
	if e.Schedule != nil {
		schedule := Schedule(*e.Schedule)
		schedule.Args = "" // as in lists
		out.Schedule = &schedule
	}
	return out
}

// Tenths returns a duration in seconds, rounded to a tenth.
func Tenths(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)/(100*time.Millisecond)) / 10
}

// NoLimit is a time limit that is never reached.
const NoLimit time.Duration = 1 << 62

// Deadline returns a deadline as transports show it, in seconds: 0 if there is none.
func Deadline(d time.Duration) float64 {
	if d >= NoLimit {
		return 0
	}
	return d.Seconds()
}

// maxPreview bounds what is shown of a result that is too large, in bytes.
const maxPreview = 1 << 10

// An Omission stands for a result or content that is too large to show. It is zero if both
// are shown.
type Omission struct {
	ResultBytes   int    `json:"result_bytes,omitempty"`
	ResultPreview string `json:"result_preview,omitempty"` // beginning of the result
	ContentBytes  int    `json:"content_bytes,omitempty"`
}

// Omit removes the result or the content if it is larger than the room, in bytes, and returns
// what it removed. It subtracts the size of whatever remains from the room.
func Omit(result, content *json.RawMessage, room *int) (o Omission) {
	if len(*result) > *room {
		o.ResultBytes, o.ResultPreview = len(*result), strings.ToValidUTF8(string((*result)[:min(maxPreview, *room)]), "")
		*result = nil
	}
	*room -= len(*result)
	if len(*content) > *room {
		o.ContentBytes, *content = len(*content), nil
	}
	*room -= len(*content)
	return o
}

// JSON is like json.Marshal, but without HTML escapes: a model pays for each character.
func JSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
