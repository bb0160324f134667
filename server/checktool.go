package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// The default wait of check_background, and the sizes of its answers.
const (
	defaultWait = 60 * time.Second // for the end of named runs
	maxAnswer   = 50_000           // characters of one answer
	maxInline   = 8 << 10          // bytes of a result shown whole
	preview     = 1 << 10          // bytes shown of a larger result
	envelope    = 400              // characters of a report without its output and its result
	minRoom     = 32               // characters; nothing is cut to less
	maxRows     = 20               // runs of a list
	maxRowTitle = 40               // characters of a title in a list
)

// portion returns the characters available to the output, and to the result, of each of n runs.
func portion(n int) int { return (maxAnswer/n - envelope) / 2 }

// excerpt stands for a result or content that is too large to show. It is zero if both
// are shown.
type excerpt struct {
	ResultBytes   int    `json:"result_bytes,omitempty"`
	ResultPreview string `json:"result_preview,omitempty"` // beginning of the result
	ContentBytes  int    `json:"content_bytes,omitempty"`
}

// cut removes the result and the content of a run if they exceed the room, and returns
// their excerpt. It subtracts what remains from the room, in bytes.
func cut(run *engine.Run, room *int) (e excerpt) {
	if len(run.Result) > *room {
		e.ResultBytes, e.ResultPreview = len(run.Result), strings.ToValidUTF8(string(run.Result[:min(preview, *room)]), "")
		run.Result = nil
	}
	*room -= len(run.Result)
	if len(run.Content) > *room {
		e.ContentBytes, run.Content = len(run.Content), nil
	}
	*room -= len(run.Content)
	return e
}

// A row is a run in a list.
type row struct {
	TaskID         string        `json:"task_id"`
	Tool           string        `json:"tool"`
	Title          string        `json:"title"`
	Status         engine.Status `json:"status"`
	Unsaved        bool          `json:"unsaved,omitempty"`
	Parent         string        `json:"parent,omitempty"` // the run that started it
	ElapsedSeconds float64       `json:"elapsed_seconds"`  // since the start, to the end
}

func newRow(r engine.Run, title string) row {
	return row{r.ID, r.Tool, title, r.Status, r.Unsaved, r.Parent, shape.Tenths(r.Elapsed(time.Now()))}
}

// A report is the answer of check_background about one run.
type report struct {
	row
	Done     bool `json:"done"` // the status is terminal, and stored
	Stopping bool `json:"stopping,omitempty"`
	engine.Beat
	Output            *output.Page     `json:"output,omitempty"`
	Summary           string           `json:"summary,omitempty"`
	Result            json.RawMessage  `json:"result,omitempty"`
	Content           json.RawMessage  `json:"content,omitempty"`
	ExitCode          *int             `json:"exit_code,omitempty"`
	Error             *engine.RunError `json:"error,omitempty"`
	ArtifactError     string           `json:"artifact_error,omitempty"`
	WaitedSeconds     float64          `json:"waited_seconds,omitempty"`
	DeadlineInSeconds float64          `json:"deadline_in_seconds,omitempty"`
	WaitsUntil        time.Time        `json:"waits_until,omitzero"`
	ResultPath        string           `json:"result_path,omitempty"` // if it has more than is shown
	LogPath           string           `json:"log_path,omitempty"`    // likewise
	Next              string           `json:"next,omitempty"`        // advice
	excerpt
	Awaited []string `json:"waiting_for_input,omitempty"` // questions to its user
}

// listing is the answer of check_background for all runs: active ones first, then the
// newest first. The counts include runs that are not shown.
type listing struct {
	Active    int           `json:"active"`
	Finished  int           `json:"finished"`
	Tasks     []row         `json:"tasks"`
	More      int           `json:"more,omitempty"`              // runs that are not shown
	Schedules []scheduleRow `json:"schedules,omitempty"`         // enabled ones, newest first
	Awaiting  []string      `json:"waiting_for_input,omitempty"` // runs with open questions to their user
}

// unlisted is the answer in a session where nothing can be listed.
type unlisted struct {
	Tasks []row  `json:"tasks"`
	Next  string `json:"next"`
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
		return v.list(ctx, in.Finished, req.Unnamed)
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

	o := reportOptions{unnamed: req.Unnamed, several: len(ids) > 1, asked: in.Cursor != "" || in.MaxChars != nil, file: fileName(req, v.service.kept()), result: maxInline}
	if in.MaxChars != nil && !o.several {
		o.result = max(o.result, r.MaxChars)
	}
	longest := background.MaxWait
	if req.ParkAfter > 0 {
		longest = min(longest, req.ParkAfter)
	}
	if r.Wait > longest {
		r.Wait, o.shortened = longest, longest
	}
	return v.checkRuns(ctx, r, o)
}

// reportOptions say what the report of a run includes.
type reportOptions struct {
	unnamed   bool                                   // the caller did not name the session
	several   bool                                   // the answer has other reports too
	asked     bool                                   // the agent wants output even of a successful run
	shortened time.Duration                          // longest wait here, if the agent asked for a longer one
	result    int                                    // bytes of a result shown whole
	file      func(r engine.Run, name string) string // how to read a file of a run; empty if that is impossible
}

// fileName returns how agents read the files of runs: as the caller names them, or by the
// path below the data folder.
func fileName(req Request, kept bool) func(r engine.Run, name string) string {
	switch {
	case req.FileName != nil:
		return func(r engine.Run, name string) string { return req.FileName(r.ID, name) }
	case kept:
		return engine.Run.Path
	}
	return func(engine.Run, string) string { return "" }
}

// recently is how long the default list shows a run that has ended.
const recently = time.Hour

// list lists the runs and schedules of the session: active ones, and ended ones: all,
// none, or, if finished is nil, those of the last hour. An empty list of an unnamed
// session says nothing about the caller's other runs.
func (v Session) list(ctx context.Context, finished *bool, unnamed bool) (any, error) {
	runs, err := v.service.runs.List(ctx, engine.Query{Session: v.name})
	if err != nil {
		return nil, err
	}
	schedules, err := v.service.runs.Schedules(ctx, v.name)
	if err != nil {
		return nil, err
	}

	if unnamed && len(runs)+len(schedules) == 0 {
		return unlisted{[]row{}, "your runs are not listed here: find them by their task_ids only"}, nil
	}

	var active, ended []engine.Run
	for _, r := range runs {
		if r.Status.Terminal() {
			ended = append(ended, r)
		} else {
			active = append(active, r)
		}
	}
	all := listing{Active: len(active), Finished: len(ended), Tasks: []row{}, Awaiting: v.awaiting(ctx, active)}
	switch {
	case finished == nil:
		since := time.Now().Add(-recently)
		recent := slices.DeleteFunc(slices.Clone(ended), func(r engine.Run) bool { return r.FinishedAt.Before(since) })
		active = append(active, recent...)
	case *finished:
		active = append(active, ended...)
	}
	all.More = max(0, len(active)-maxRows)
	for _, r := range active[:len(active)-all.More] {
		all.Tasks = append(all.Tasks, newRow(r, output.Clip(r.Title, maxRowTitle)))
	}
	for _, s := range schedules {
		if s.Enabled {
			all.Schedules = append(all.Schedules, scheduleRow{s.ID, output.Clip(s.Title, maxRowTitle), s.NextAt})
		}
	}
	return all, nil
}

// awaiting returns the ids of runs that wait for their user: all that are running, and
// those among the newest that are suspended.
func (v Session) awaiting(ctx context.Context, active []engine.Run) []string {
	ids := v.service.asked.Runs(v.name)
	for _, r := range active[:min(len(active), maxRows)] {
		if (r.Status == engine.StatusWaiting || v.service.asked.Shared) && len(v.service.asked.Open(ctx, r)) > 0 {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// checkRuns reports on runs in one answer of bounded size. Some text takes more room in
// JSON than it has characters: then it checks again with less room. The next check shows
// the output that this one omits.
func (v Session) checkRuns(ctx context.Context, r background.CheckRequest, o reportOptions) (any, error) {
	var waited time.Duration // by the first check
	wanted := r.MaxChars

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
			if answer.Tasks[i], err = v.fit(ctx, found, room, o); err != nil {
				return nil, err
			}
			answer.Tasks[i].WaitedSeconds = shape.Tenths(waited)
		}

		if checked.Missing != nil {
			answer.Missing = reason.NotFound(checked.Missing)
		}

		var shown any = answer
		if !o.several {
			shown = answer.Tasks[0]
		}

		data, err := encode(shown)
		if err != nil || utf8.RuneCount(data) <= maxAnswer || room < minRoom {
			return data, err
		}
	}
}

// fit makes the report of a run, and cuts each text to the room. It names files only if
// they have more than is shown. A successful run shows its result, and its output only if
// that was requested, or is all there is.
func (v Session) fit(ctx context.Context, r background.Report, room int, o reportOptions) (report, error) {
	space := min(room, o.result)
	if err := v.load(ctx, &r.Run, engine.PartResult, engine.PartContent); err != nil {
		return report{}, err
	}
	succeeded := r.Final() && r.Status == engine.StatusSucceeded
	if succeeded && !o.asked && (r.Result != nil || r.Content != nil) {
		r.Output = nil
	}
	if succeeded {
		r.Detail, r.Progress = "", nil
	}
	large := cut(&r.Run, &space)

	out := report{
		row: newRow(r.Run, r.Title), Done: r.Final(), Stopping: r.Cancel != nil && !r.Status.Terminal(),
		Beat: engine.Beat{Detail: r.Detail, Progress: r.Progress}, Output: r.Output, excerpt: large,
		Summary: reason.Clip(r.Summary, room), Result: r.Result, Content: r.Content, ExitCode: r.ExitCode, ArtifactError: r.ArtifactError,
	}
	if r.Error != nil {
		out.Error = &engine.RunError{Kind: r.Error.Kind, Message: reason.Clip(r.Error.Message, room)}
	}
	if r.Status == engine.StatusRunning {
		out.DeadlineInSeconds = shape.Tenths(max(0, r.Timeout-r.Elapsed(time.Now())))
	}
	if r.Status == engine.StatusWaiting {
		out.WaitsUntil = r.WakeAt.Truncate(time.Second)
	}
	if !out.Done {
		out.ArtifactError, out.Awaited = "", question.Messages(v.service.asked.Open(ctx, r.Run), room)
	}
	if r.Held != "" && !out.Done {
		out.Awaited = []string{"a person's " + r.Held}
	}
	if out.Done && large != (excerpt{}) {
		out.ResultPath = o.file(r.Run, engine.ResultJSON)
	}
	if out.Done && r.Output != nil && r.Output.OmittedBytes > 0 {
		out.LogPath = o.file(r.Run, engine.OutputLog)
	}

	out.Next = o.next(r, out, large)
	return out, nil
}

// next advises an agent about a run where the next step is not obvious.
func (o reportOptions) next(r background.Report, out report, large excerpt) string {
	switch {
	case r.Held != "" && !out.Done:
		return "a person has to approve it, and you cannot: continue with other work, or tell your user"
	case len(out.Awaited) > 0:
		return "it waits for your user to answer: ask them to, you cannot answer for them"
	case r.Unsaved:
		return shape.TextUnsaved
	case o.shortened > 0 && !out.Done:
		return fmt.Sprintf("still running after %.0f seconds, the longest wait here: check again to wait longer", o.shortened.Seconds())
	case o.several && large.ResultBytes > 0 && large.ResultBytes <= maxInline:
		return "check this task alone for the whole result"
	case out.Done && large.ResultBytes > o.result && large.ResultBytes <= background.MaxChars:
		return fmt.Sprintf("check this task alone with max_chars %d for the whole result", background.MaxChars)
	case r.Repeated && !out.Done && r.SignalOnCompletion && !o.unnamed:
		return "nothing new; its end comes with a later tool result. Wait with wait_seconds, or continue with other work."
	case r.Repeated && !out.Done:
		return "nothing new. Wait with wait_seconds, or continue with other work."
	}
	return ""
}
