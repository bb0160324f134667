package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// The default wait of check_background, and the sizes of its answers.
const (
	defaultWait = 60 * time.Second // wait for the end of runs that the agent names
	maxAnswer   = 50_000           // maximum length of one answer, in characters
	maxInline   = 8 << 10          // maximum size of a result shown whole, in bytes
	envelope    = 400              // length of a report without its output and its result, in characters
	minRoom     = 32               // characters; with less room than that, no text is cut further
	maxRows     = 20               // maximum number of runs shown in a list
	maxRowTitle = 40               // maximum length of a title in a list, in characters
)

// portion returns the characters available to the output, and to the result, of each of n runs.
func portion(n int) int { return (maxAnswer/n - envelope) / 2 }

// A checker reports on runs and schedules.
type checker interface {
	// Runs returns the runs, newest first.
	Runs(ctx context.Context) ([]engine.Run, error)
	// Schedules returns the schedules, newest first.
	Schedules(ctx context.Context) ([]wire.Schedule, error)
	// Check returns runs with their results and content. It returns early if one of them
	// asks its user something.
	Check(ctx context.Context, r background.CheckRequest) (background.CheckResult, error)
	// Questions returns the open questions of a run to its user, by key.
	Questions(ctx context.Context, run engine.Run) map[string]abi.Question
	// Asking returns the ids of the runs that wait for their user: all such runs that are
	// running, and such runs among the suspended ones passed to it.
	Asking(ctx context.Context, suspended []engine.Run) []string
}

// A row is a run in a list.
type row struct {
	TaskID         string        `json:"task_id"`
	Tool           string        `json:"tool"`
	Title          string        `json:"title"`
	Status         engine.Status `json:"status"`
	Unsaved        bool          `json:"unsaved,omitempty"`
	Parent         string        `json:"parent,omitempty"` // the run that started it
	ElapsedSeconds float64       `json:"elapsed_seconds"`  // time from the start to the end, or until now
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
	Output            *output.Excerpt  `json:"output,omitempty"`
	Summary           string           `json:"summary,omitempty"`
	Result            json.RawMessage  `json:"result,omitempty"`
	Content           json.RawMessage  `json:"content,omitempty"`
	ExitCode          *int             `json:"exit_code,omitempty"`
	Error             *engine.RunError `json:"error,omitempty"`
	ArtifactError     string           `json:"artifact_error,omitempty"`
	WaitedSeconds     float64          `json:"waited_seconds,omitempty"`
	DeadlineInSeconds float64          `json:"deadline_in_seconds,omitempty"`
	WaitsUntil        time.Time        `json:"waits_until,omitzero"`
	ResultPath        string           `json:"result_path,omitempty"` // file with the whole result, if only a part is shown
	LogPath           string           `json:"log_path,omitempty"`    // file with the whole log, if only a part of the output is shown
	Next              string           `json:"next,omitempty"`        // advice
	shape.Omission
	Awaited []string `json:"waiting_for_input,omitempty"` // questions to its user
}

// listing is the answer of check_background for all runs: active ones first, then the
// newest first. The counts include runs that are not shown.
type listing struct {
	Active    int           `json:"active"`
	Finished  int           `json:"finished"`
	Tasks     []row         `json:"tasks"`
	More      int           `json:"more,omitempty"`              // runs that are not shown
	Schedules []scheduleRow `json:"schedules,omitempty"`         // enabled schedules, newest first
	Awaiting  []string      `json:"waiting_for_input,omitempty"` // runs that are held, or have open questions to their user
}

// emptyListing is the answer in a session where nothing can be listed.
type emptyListing struct {
	Tasks []row  `json:"tasks"`
	Next  string `json:"next"`
}

type scheduleRow struct {
	ScheduleID    string    `json:"schedule_id"`
	Title         string    `json:"title"`
	NextTriggerAt time.Time `json:"next_trigger_at,omitzero"`
}

// check reports on runs, or lists them.
func check(ctx context.Context, s Session, c Call) (any, error) {
	in, err := decode[struct {
		ID       string   `json:"task_id"`
		IDs      []string `json:"task_ids"`
		List     bool     `json:"list"`
		Wait     *float64 `json:"wait_seconds"`
		Until    string   `json:"until"`
		Cursor   string   `json:"cursor"`
		MaxChars *float64 `json:"max_chars"`
		Finished *bool    `json:"include_finished"`
	}](c.Args)
	if err != nil {
		return nil, err
	}

	ids := in.IDs
	if in.ID != "" {
		ids = append(ids, in.ID)
	}

	switch {
	case in.List || len(ids) == 0:
		if in.Wait != nil {
			if err := waitForAny(ctx, s, c.longest(seconds(*in.Wait))); err != nil {
				return nil, err
			}
		}
		return list(ctx, s, in.Finished, c.Unnamed)
	case in.ID != "" && len(in.IDs) > 0:
		return nil, &background.FieldError{Field: "task_ids", Problem: "give either task_id or task_ids"}
	}

	r := background.CheckRequest{IDs: ids, Wait: defaultWait, Until: background.Until(in.Until), Cursor: in.Cursor, MaxChars: background.DefaultChars}
	if in.Wait != nil {
		r.Wait = seconds(*in.Wait)
	}
	if in.MaxChars != nil {
		r.MaxChars = int(max(0, min(*in.MaxChars, background.MaxChars)))
	}

	o := reportOptions{unnamed: c.Unnamed, several: len(ids) > 1, asked: in.Cursor != "" || in.MaxChars != nil, file: c.File, result: maxInline}
	if in.MaxChars != nil && !o.several {
		o.result = max(o.result, r.MaxChars)
	}
	if longest := c.longest(r.Wait); r.Wait > longest {
		r.Wait, o.shortened = longest, longest
	}
	return checkRuns(ctx, s, r, o)
}

// longest cuts a wait to the longest that the call allows.
func (c Call) longest(wait time.Duration) time.Duration {
	if c.MaxWait > 0 {
		wait = min(wait, c.MaxWait)
	}
	return min(wait, background.MaxWait)
}

// waitForAny waits until an active run ends, or asks its user something.
func waitForAny(ctx context.Context, s checker, wait time.Duration) error {
	runs, err := s.Runs(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, r := range runs {
		if !r.Status.Terminal() && len(ids) < background.MaxIDs {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 || wait <= 0 {
		return nil
	}

	_, err = s.Check(ctx, background.CheckRequest{IDs: ids, Wait: wait, Until: background.UntilAny, MaxChars: -1, Peek: true})
	if _, gone := errors.AsType[*background.NotFoundError](err); gone {
		return nil
	}
	return err
}

// reportOptions say what the report of a run includes.
type reportOptions struct {
	unnamed   bool                                   // the caller did not name the session
	several   bool                                   // the answer has other reports too
	asked     bool                                   // the agent wants output even of a successful run
	shortened time.Duration                          // longest wait here, if the agent asked for a longer one
	result    int                                    // maximum size of a result shown whole, in bytes
	file      func(r engine.Run, name string) string // how to read a file of a run; empty if that is impossible
}

// recently is how long the default list shows a run that has ended.
const recently = time.Hour

// list lists the schedules and the active runs of the session, and of its ended runs all,
// none, or, if finished is nil, those of the last hour. An empty list of an unnamed session
// says nothing about the caller's other runs.
func list(ctx context.Context, s checker, finished *bool, unnamed bool) (any, error) {
	runs, err := s.Runs(ctx)
	if err != nil {
		return nil, err
	}
	schedules, err := s.Schedules(ctx)
	if err != nil {
		return nil, err
	}

	if unnamed && len(runs)+len(schedules) == 0 {
		return emptyListing{[]row{}, "your runs are not listed here: find them by their task_ids only"}, nil
	}

	var active, ended []engine.Run
	for _, r := range runs {
		if r.Status.Terminal() {
			ended = append(ended, r)
		} else {
			active = append(active, r)
		}
	}
	all := listing{Active: len(active), Finished: len(ended), Tasks: []row{}, Awaiting: s.Asking(ctx, active[:min(len(active), maxRows)])}
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
		if r.Undecided() {
			all.Awaiting = append(all.Awaiting, r.ID)
		}
	}
	for _, one := range schedules {
		if one.Enabled {
			all.Schedules = append(all.Schedules, scheduleRow{one.ScheduleID, output.Clip(one.Title, maxRowTitle), one.NextTriggerAt})
		}
	}
	return all, nil
}

// checkRuns reports on runs in one answer of bounded size. Some text takes more room in
// JSON than it has characters: then it checks again with less room. The next check shows
// the output that this one omits.
func checkRuns(ctx context.Context, s checker, r background.CheckRequest, o reportOptions) (any, error) {
	var waited time.Duration // by the first check
	wanted := r.MaxChars

	for room := portion(len(r.IDs)); ; room /= 2 {
		if r.MaxChars = min(wanted, room); r.MaxChars == 0 {
			r.MaxChars = -1 // no output
		}

		checked, err := s.Check(ctx, r)
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
			answer.Tasks[i] = o.report(ctx, s, found, room)
			answer.Tasks[i].WaitedSeconds = shape.Tenths(waited)
		}

		if checked.Missing != nil {
			answer.Missing = reason.NotFound(checked.Missing)
		}

		var shown any = answer
		if !o.several {
			shown = answer.Tasks[0]
		}

		data, err := shape.JSON(shown)
		if err != nil || utf8.RuneCount(data) <= maxAnswer || room < minRoom {
			return data, err
		}
	}
}

// report makes the report of a run, and cuts each text to the room. It names files only if
// they have more than is shown. A successful run shows its result, and its output only if
// that was requested, or is all there is.
func (o reportOptions) report(ctx context.Context, s checker, r background.Report, room int) report {
	space := min(room, o.result)
	succeeded := r.Final() && r.Status == engine.StatusSucceeded
	if succeeded && !o.asked && (r.Result != nil || r.Content != nil) {
		r.Output = nil
	}
	if succeeded {
		r.Detail, r.Progress = "", nil
	}
	omitted := shape.Omit(&r.Result, &r.Content, &space)

	out := report{
		row: newRow(r.Run, r.Title), Done: r.Final(), Stopping: r.Cancel != nil && !r.Status.Terminal(),
		Beat: engine.Beat{Detail: r.Detail, Progress: r.Progress}, Output: r.Output, Omission: omitted,
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
		out.ArtifactError, out.Awaited = "", question.Messages(s.Questions(ctx, r.Run), room)
	}
	if r.Held != "" && !out.Done {
		out.Awaited = []string{"a person's " + r.Held}
	}
	if out.Done && omitted != (shape.Omission{}) {
		out.ResultPath = o.file(r.Run, engine.ResultJSON)
	}
	if out.Done && r.Output != nil && r.Output.OmittedBytes > 0 {
		out.LogPath = o.file(r.Run, engine.OutputLog)
	}

	out.Next = o.next(r, out)
	return out
}

// next advises an agent about a run where the next step is not obvious.
func (o reportOptions) next(r background.Report, out report) string {
	switch {
	case r.Held != "" && !out.Done:
		return "a person has to approve it, and you cannot: continue with other work, or tell your user"
	case len(out.Awaited) > 0:
		return "it waits for your user to answer: ask them to, you cannot answer for them"
	case r.Unsaved:
		return shape.TextUnsaved
	case o.shortened > 0 && !out.Done:
		return fmt.Sprintf("still running after %.0f seconds, the longest wait here: check again to wait longer", o.shortened.Seconds())
	case o.several && out.ResultBytes > 0 && out.ResultBytes <= maxInline:
		return "check this task alone for the whole result"
	case out.Done && out.ResultBytes > o.result && out.ResultBytes <= background.MaxChars:
		return fmt.Sprintf("check this task alone with max_chars %d for the whole result", background.MaxChars)
	case r.Repeated && !out.Done && r.SignalOnCompletion && !o.unnamed:
		return "nothing new; its end comes with a later tool result. Wait with wait_seconds, or continue with other work."
	case r.Repeated && !out.Done:
		return "nothing new. Wait with wait_seconds, or continue with other work."
	}
	return ""
}
