package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/wire"
)

// The default wait of check_background, and the sizes of its answers.
const (
	defaultWait = 60 * time.Second // for the end of named runs
	maxAnswer   = 50_000           // characters of one answer
	maxInline   = 8 << 10          // bytes of a result that is shown whole
	preview     = 1 << 10          // bytes that are shown of a larger result
	envelope    = 400              // characters of a report without its output and its result
	minRoom     = 32               // characters; nothing is cut to less
	maxRows     = 20               // runs of a list
	maxRowTitle = 40               // characters of a title in a list
)

// portion returns how many characters the output and the result of each of n
// runs may have in an answer.
func portion(n int) int { return (maxAnswer/n - envelope) / 2 }

// excerpt replaces a result or content that is too large to show. It is zero if
// both are shown.
type excerpt struct {
	ResultBytes   int    `json:"result_bytes,omitempty"`
	ResultPreview string `json:"result_preview,omitempty"` // its beginning
	ContentBytes  int    `json:"content_bytes,omitempty"`
}

// cut removes a result and content that have more than max bytes, and returns
// their excerpt.
func cut(result, content *json.RawMessage, max int) (e excerpt) {
	if len(*result) > max {
		e.ResultBytes, e.ResultPreview = len(*result), strings.ToValidUTF8(string((*result)[:min(preview, max)]), "")
		*result = nil
	}
	if len(*result)+len(*content) > max {
		e.ContentBytes = len(*content)
		*content = nil
	}
	return e
}

// part returns a part of a run's payload; nil if the record is gone.
func (v Session) part(ctx context.Context, id string, part engine.Part) (json.RawMessage, error) {
	data, err := v.service.runs.Payload(ctx, v.name, id, part)
	if errors.Is(err, engine.ErrNotFound) {
		return nil, nil
	}
	return data, err
}

// A report is what check_background says of one run.
type report struct {
	TaskID            string           `json:"task_id"`
	Tool              string           `json:"tool"`
	Title             string           `json:"title"`
	Status            engine.Status    `json:"status"`
	Done              bool             `json:"done"`              // the status is terminal, and stored
	Unsaved           bool             `json:"unsaved,omitempty"` // the run has ended, and that is not stored yet
	Stopping          bool             `json:"stopping,omitempty"`
	ElapsedSeconds    float64          `json:"elapsed_seconds"` // since the start, to the end
	Detail            string           `json:"detail,omitempty"`
	Progress          *engine.Progress `json:"progress,omitempty"`
	Output            *output.Page     `json:"output,omitempty"`
	ExitCode          *int             `json:"exit_code,omitempty"`
	Result            json.RawMessage  `json:"result,omitempty"`
	Content           json.RawMessage  `json:"content,omitempty"`     // what the tool showed besides its result or its error
	ResultPath        string           `json:"result_path,omitempty"` // if it leads to more than is shown
	Error             *engine.RunError `json:"error,omitempty"`
	ArtifactError     string           `json:"artifact_error,omitempty"` // what of the run could not be stored
	Summary           string           `json:"summary,omitempty"`
	WaitedSeconds     float64          `json:"waited_seconds,omitempty"`
	DeadlineInSeconds float64          `json:"deadline_in_seconds,omitempty"`
	LogPath           string           `json:"log_path,omitempty"` // if it leads to more than is shown
	Next              string           `json:"next,omitempty"`     // advice
	excerpt
	Awaited []string `json:"waiting_for_input,omitempty"` // questions to its user
}

// listing is the answer of check_background for all runs: active ones first, then
// the newest first. The counts are of all runs, whatever it shows.
type listing struct {
	Active    int           `json:"active"`
	Finished  int           `json:"finished"`
	Tasks     []row         `json:"tasks"`
	More      int           `json:"more,omitempty"`              // runs that are not shown
	Schedules []scheduleRow `json:"schedules,omitempty"`         // enabled ones, newest first
	Awaiting  []string      `json:"waiting_for_input,omitempty"` // runs with open questions to their user
}

type row struct {
	TaskID         string      `json:"task_id"`
	Tool           string      `json:"tool"`
	Title          string      `json:"title"`
	Status         wire.Status `json:"status"`
	Unsaved        bool        `json:"unsaved,omitempty"`
	ElapsedSeconds float64     `json:"elapsed_seconds"`
}

type scheduleRow struct {
	ScheduleID    string    `json:"schedule_id"`
	Title         string    `json:"title"`
	NextTriggerAt time.Time `json:"next_trigger_at,omitzero"`
}

// check reports on runs, or lists them.
func check(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		ID       string   `json:"task_id"`
		IDs      []string `json:"task_ids"`
		List     bool     `json:"list"`
		Wait     *float64 `json:"wait_seconds"`
		Until    string   `json:"until"`
		Cursor   string   `json:"cursor"`
		MaxChars *float64 `json:"max_chars"`
		Finished *bool    `json:"include_finished"`
	}](req.Args)
	if err != nil {
		return nil, err
	}

	v, ids := s.Session(req.Session), in.IDs
	if in.ID != "" {
		ids = append(ids, in.ID)
	}

	switch {
	case in.List || len(ids) == 0:
		return v.list(ctx, in.Finished == nil || *in.Finished)
	case in.ID != "" && len(in.IDs) > 0:
		return nil, &background.FieldError{Field: "task_ids", Problem: "give either task_id or task_ids"}
	}

	r := background.CheckRequest{IDs: ids, Wait: defaultWait, Until: background.Until(in.Until), Cursor: in.Cursor, MaxChars: background.DefaultChars}
	if in.Wait != nil {
		r.Wait = duration(*in.Wait)
	}
	if in.MaxChars != nil {
		r.MaxChars = int(max(0, min(*in.MaxChars, background.MaxChars)))
	}

	return v.checkRuns(ctx, r)
}

// list lists the runs and schedules of the session.
func (v Session) list(ctx context.Context, finished bool) (any, error) {
	runs, err := v.Runs(ctx, RunQuery{})
	if err != nil {
		return nil, err
	}
	schedules, err := v.Schedules(ctx)
	if err != nil {
		return nil, err
	}

	active := slices.DeleteFunc(slices.Clone(runs), func(r wire.Run) bool { return r.Status.Terminal() })
	ended := slices.DeleteFunc(runs, func(r wire.Run) bool { return !r.Status.Terminal() })
	all := listing{Active: len(active), Finished: len(ended), Tasks: []row{}, Awaiting: v.service.asked.runs(v.name)}
	if finished {
		active = append(active, ended...)
	}
	all.More = max(0, len(active)-maxRows)
	for _, r := range active[:len(active)-all.More] {
		all.Tasks = append(all.Tasks, row{r.TaskID, r.Tool, output.Clip(r.Title, maxRowTitle), r.Status, r.Unsaved, r.ElapsedSeconds})
	}
	for _, s := range schedules {
		if s.Enabled {
			all.Schedules = append(all.Schedules, scheduleRow{s.ScheduleID, output.Clip(s.Title, maxRowTitle), s.NextTriggerAt})
		}
	}
	return all, nil
}

// checkRuns reports on runs in one answer of bounded size. Some text takes more
// room in JSON than it has characters: then it checks again with less room. The
// next check shows the output that this one omits.
func (v Session) checkRuns(ctx context.Context, r background.CheckRequest) (any, error) {
	var waited time.Duration // by the first check
	wanted, several, shortened := r.MaxChars, len(r.IDs) > 1, r.Wait > background.MaxWait

	for room := portion(len(r.IDs)); ; room /= 2 {
		if r.MaxChars = min(wanted, room); r.MaxChars == 0 {
			r.MaxChars = -1 // no output
		}

		checked, err := v.check(ctx, r)
		if err != nil {
			return nil, err
		}
		waited += checked.Waited
		r.Wait = 0

		answer := struct {
			Tasks   []report `json:"tasks"`
			Missing string   `json:"error,omitempty"`
		}{Tasks: make([]report, len(checked.Reports))}
		for i, found := range checked.Reports {
			if answer.Tasks[i], err = v.fit(ctx, found, room, several, shortened); err != nil {
				return nil, err
			}
			answer.Tasks[i].WaitedSeconds = tenths(waited)
		}

		if checked.Missing != nil {
			answer.Missing = notFound(checked.Missing)
		}

		var shown any = answer
		if !several {
			shown = answer.Tasks[0]
		}

		data, err := encode(shown)
		if err != nil || utf8.RuneCount(data) <= maxAnswer || room < minRoom {
			return data, err
		}
	}
}

// fit makes the report of a run, and cuts each text to the room. It keeps paths
// only where they lead to more than is shown. Several says that the answer has
// other reports too, shortened that the agent asked for a wait that is too long.
func (v Session) fit(ctx context.Context, r background.Report, room int, several, shortened bool) (report, error) {
	elapsed := r.Elapsed(time.Now())
	out := report{
		TaskID: r.ID, Tool: r.Tool, Title: r.Title, Status: r.Status, Done: r.Final(), Unsaved: r.Unsaved,
		Stopping: r.Cancel != nil && !r.Status.Terminal(), ElapsedSeconds: tenths(elapsed),
		Detail: r.Detail, Progress: r.Progress, Output: r.Output, ExitCode: r.ExitCode, Summary: clip(r.Summary, room),
	}
	if r.Error != nil {
		out.Error = &engine.RunError{Kind: r.Error.Kind, Message: clip(r.Error.Message, room)}
	}
	if r.Status == engine.StatusRunning {
		out.DeadlineInSeconds = tenths(max(0, r.Timeout-elapsed))
	}

	if r.Status.Terminal() {
		var err error
		if out.Result, err = v.part(ctx, r.ID, engine.PartResult); err != nil {
			return out, err
		}
		if out.Content, err = v.part(ctx, r.ID, engine.PartContent); err != nil {
			return out, err
		}
		out.excerpt = cut(&out.Result, &out.Content, min(room, maxInline))
	}
	if out.Done {
		out.ArtifactError = r.ArtifactError
		if out.excerpt != (excerpt{}) {
			out.ResultPath = r.Path(engine.ResultJSON)
		}
		if r.Output != nil && r.Output.OmittedBytes > 0 {
			out.LogPath = r.Path(engine.OutputLog)
		}
	} else {
		out.Awaited = messages(v.service.asked.open(runKey{v.name, r.ID}), room)
	}

	switch {
	case len(out.Awaited) > 0:
		out.Next = "it waits for your user to answer: tell them; you cannot answer for them"
	case r.Unsaved:
		out.Next = textUnsaved
	case shortened && !out.Done:
		out.Next = fmt.Sprintf("%.0f seconds is the longest wait: check again to go on waiting", background.MaxWait.Seconds())
	case several && out.ResultBytes > 0 && out.ResultBytes <= maxInline:
		out.Next = "check this task alone for the whole result"
	case r.Repeated && !out.Done && r.SignalOnCompletion:
		out.Next = "nothing new; you will be notified. Wait with wait_seconds, or continue with other work."
	case r.Repeated && !out.Done:
		out.Next = "nothing new. Wait with wait_seconds, or continue with other work."
	}
	return out, nil
}
