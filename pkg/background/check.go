package background

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Until says which of several runs a wait waits for.
type Until string

// What a wait waits for. The zero value is UntilAny.
const (
	UntilAny Until = "any" // the first run to end
	UntilAll Until = "all" // all of them
)

// A CheckRequest says what to look at. Only IDs is required.
type CheckRequest struct {
	IDs      []string      // 1 to MaxIDs; one that comes twice counts once
	Wait     time.Duration // how long to wait for the end; cut to 0 … MaxWait
	Until    Until         // "": UntilAny
	Cursor   string        // of an earlier report: show only later output; "": the latest output; for one id only
	MaxChars int           // characters of output for each run; 0: DefaultChars; cut to MaxChars; negative: no output
	Peek     bool          // who looks is not the session's agent: notices stay pending

	// MaxPayload is how many bytes of result and content a report has at most: a
	// larger part is left out, and Report.OmittedResult or OmittedContent is its size.
	// 0: no limit; negative: neither is read.
	MaxPayload int

	// Enough ends the wait when it is closed. Nil never does.
	Enough <-chan struct{}
}

// A CheckResult is the answer to a check. Reports are in the order of the ids.
type CheckResult struct {
	Reports []Report
	Runs    []engine.Run   // the records of the reports, without payload
	Missing *NotFoundError // the ids the session does not have; nil if it has all
}

// A Report is what an agent is shown of one run. Absent fields are left out of
// its JSON.
type Report struct {
	TaskID            string           `json:"task_id"`
	Tool              string           `json:"tool"`
	Title             string           `json:"title"`
	Status            engine.Status    `json:"status"`
	Done              bool             `json:"done"`              // the status is terminal, and stored
	Unsaved           bool             `json:"unsaved,omitempty"` // the run has ended, and that is not stored yet: see [engine.Run]
	Stopping          bool             `json:"stopping,omitempty"`
	ElapsedSeconds    float64          `json:"elapsed_seconds"` // since the start, to the end; to a tenth
	Detail            string           `json:"detail,omitempty"`
	Progress          *engine.Progress `json:"progress,omitempty"`
	Output            *output.Page     `json:"output,omitempty"`
	ExitCode          *int             `json:"exit_code,omitempty"`
	Result            json.RawMessage  `json:"result,omitempty"`
	Content           json.RawMessage  `json:"content,omitempty"`     // what the work showed next to Result or Error
	ResultPath        string           `json:"result_path,omitempty"` // of [engine.ResultJSON], when done
	Error             *engine.RunError `json:"error,omitempty"`
	ArtifactError     string           `json:"artifact_error,omitempty"` // what of the run could not be stored
	Summary           string           `json:"summary,omitempty"`
	WaitedSeconds     float64          `json:"waited_seconds,omitempty"`      // how long the check waited
	DeadlineInSeconds float64          `json:"deadline_in_seconds,omitempty"` // until a running run is ended as failed with KindTimeout
	LogPath           string           `json:"log_path,omitempty"`            // of [engine.OutputLog], when done
	Next              string           `json:"next,omitempty"`                // advice

	OmittedResult  int `json:"-"` // of a result that is left out, see CheckRequest.MaxPayload
	OmittedContent int `json:"-"` // of content that is left out
}

// Check reports on runs of a session, and waits for their end first if asked
// to. Reading changes nothing: the same check gives the same answer until the
// run changes. Only the notice of an end that is shown, and is stored, counts as
// acknowledged, unless the request is to Peek. A wait ends with the end of a run
// whether that can be stored or not; the next one waits until it is. The third
// equal check within 10 seconds carries advice to do something else.
//
// If the session has none of the runs, the error is a *[NotFoundError]; if it
// has some, Check waits for those and the others are in Missing. A bad request
// is a *[FieldError]. If ctx ends while waiting, the error is its.
func (m *Manager) Check(ctx context.Context, session string, req CheckRequest) (CheckResult, error) {
	after, chars, err := req.normalize()
	if err != nil {
		return CheckResult{}, fmt.Errorf("check: %w", err)
	}
	known, missing, err := m.reader.find(ctx, session, req.IDs)
	if err != nil {
		return CheckResult{}, fmt.Errorf("check: %w", err)
	}
	if !req.Peek {
		defer m.notifier.view(known)()
	}

	began := time.Now()
	if req.Wait > 0 {
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		p := patience{until: req.Until, late: timer.C, enough: req.Enough, saved: true}
		if err := m.reader.await(ctx, session, known, p); err != nil {
			return CheckResult{}, fmt.Errorf("check: waiting: %w", err)
		}
	}
	waited := time.Since(began)

	checked := CheckResult{Missing: missing}
	var ended []engine.Run
	for _, h := range known {
		run, report, err := m.report(ctx, session, h, req, after, chars)
		if gone(err) { // while the others were waited for
			checked.Missing = checked.Missing.add(err)
			continue
		}
		if err != nil {
			return CheckResult{}, fmt.Errorf("check: %w", err)
		}
		report.WaitedSeconds = tenths(waited)
		if report.Done {
			ended = append(ended, run)
		}
		checked.Reports = append(checked.Reports, report)
		checked.Runs = append(checked.Runs, run)
	}

	if len(checked.Reports) == 0 {
		return CheckResult{}, fmt.Errorf("check: %w", checked.Missing)
	}
	if !req.Peek {
		m.notifier.seen(ctx, session, ended)
	}
	return checked, nil
}

// add returns e, which may be nil, with the ids that err names.
func (e *NotFoundError) add(err error) *NotFoundError {
	more, _ := errors.AsType[*NotFoundError](err)
	if e == nil {
		return more
	}
	e.IDs = append(e.IDs, more.IDs...)
	return e
}

// normalize checks the request, brings it into bounds, and returns its cursor
// and number of characters.
func (r *CheckRequest) normalize() (after *output.Cursor, chars int, err error) {
	r.IDs = distinct(r.IDs)
	r.Wait = min(max(r.Wait, 0), MaxWait)
	switch {
	case len(r.IDs) == 0:
		return nil, 0, &FieldError{"task_id", "required"}
	case len(r.IDs) > MaxIDs:
		return nil, 0, &FieldError{"task_ids", fmt.Sprintf("more than %d", MaxIDs)}
	case !r.Until.valid():
		return nil, 0, &FieldError{"until", `must be "any" or "all"`}
	case r.Cursor != "" && len(r.IDs) > 1:
		return nil, 0, &FieldError{"cursor", "only for a single task_id"}
	}
	if r.Cursor != "" {
		c, err := output.ParseCursor(r.Cursor)
		if err != nil {
			return nil, 0, &FieldError{"cursor", err.Error()}
		}
		after = &c
	}
	chars = min(r.MaxChars, MaxChars)
	if chars == 0 {
		chars = DefaultChars
	}
	return after, chars, nil
}

func (u Until) valid() bool { return u == "" || u == UntilAny || u == UntilAll }

// report reports on one run.
func (m *Manager) report(ctx context.Context, session string, h handle, req CheckRequest, after *output.Cursor, chars int) (engine.Run, Report, error) {
	run, t, page, err := m.page(ctx, session, h, after, chars)
	if err != nil {
		return engine.Run{}, Report{}, err
	}

	report := m.newReport(run, time.Now())
	report.Output = page
	if run.Status.Terminal() && req.MaxPayload >= 0 {
		report.Result, report.OmittedResult, err = m.part(ctx, run, t, engine.PartResult, req.MaxPayload)
		if err == nil {
			report.Content, report.OmittedContent, err = m.part(ctx, run, t, engine.PartContent, req.MaxPayload)
		}
		if err != nil {
			return engine.Run{}, Report{}, err
		}
	}
	if t != nil && !req.Peek {
		report.Next = cmp.Or(report.Next, t.advice(report, m.cfg.Texts))
	}
	if report.Unsaved {
		t.shown.Store(true)
	}
	return run, report, nil
}

// part returns a part of an ended run's payload, or only its size if it has more
// than max bytes. The part of a run whose record is gone is missing.
func (m *Manager) part(ctx context.Context, run engine.Run, t *task, part engine.Part, max int) (json.RawMessage, int, error) {
	data, err := m.reader.payload(ctx, run.ID, t, part)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return nil, 0, nil
	case max > 0 && len(data) > max:
		return nil, len(data), err
	}
	return data, 0, err
}

// page returns a run with a part of its output, both of one attempt.
func (m *Manager) page(ctx context.Context, session string, h handle, after *output.Cursor, chars int) (engine.Run, *task, *output.Page, error) {
	for {
		live := h.task != nil && h.task.live.Load() // before the record
		run, t, err := m.reader.relook(ctx, session, h)
		if err != nil {
			return engine.Run{}, nil, nil, err
		}
		h.task = t

		page, err := output.Read(run, func(offset int64, max int) (engine.Chunk, error) {
			c, err := m.reader.tail(ctx, h.id, t, offset, max)
			if errors.Is(err, engine.ErrNotFound) && run.Status.Terminal() { // its record is gone, and its log too
				return engine.Chunk{Offset: run.OutputBytes, End: run.OutputBytes}, nil
			}
			return c, err
		}, after, chars)
		if err != nil {
			return engine.Run{}, nil, nil, fmt.Errorf("reading the output of run %s: %w", h.id, err)
		}
		if t == nil || live == t.live.Load() {
			return run, t, page, nil
		}
	}
}

func (c *core) newReport(run engine.Run, now time.Time) Report {
	elapsed := run.Elapsed(now)
	r := Report{
		TaskID:         run.ID,
		Tool:           run.Tool,
		Title:          run.Title,
		Status:         run.Status,
		Done:           run.Final(),
		Unsaved:        run.Unsaved,
		Stopping:       run.Cancel != nil && !run.Status.Terminal(),
		ElapsedSeconds: tenths(elapsed),
		Detail:         run.Detail,
		Progress:       run.Progress,
		ExitCode:       run.ExitCode,
		Error:          run.Error,
		Summary:        run.Summary,
	}
	if r.Done {
		r.LogPath, r.ResultPath, r.ArtifactError = run.Path(engine.OutputLog), run.Path(engine.ResultJSON), run.ArtifactError
	}
	if run.Unsaved {
		r.Next = c.cfg.Texts.Unsaved
	}
	if run.Status == engine.StatusRunning {
		r.DeadlineInSeconds = tenths(max(0, run.Timeout-elapsed))
	}
	return r
}

// tenths returns d in seconds, to a tenth.
func tenths(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }

// A run that is checked three times within checkWindow, and does not change,
// carries advice.
const (
	checkWindow = 10 * time.Second
	maxChecks   = 3
)

// recentChecks are the last checks of a run in a row that saw the same.
type recentChecks struct {
	saw   string
	times []time.Time // of the last ones, at most maxChecks
}

// advice notes a check and returns what to do next, if it is one of many that
// see the same.
func (t *task) advice(r Report, texts Texts) string {
	now := time.Now()
	saw := fmt.Sprintf("%s %t %q", r.Status, r.Stopping, r.Detail)
	if r.Progress != nil {
		saw += fmt.Sprintf(" %v", *r.Progress)
	}
	if r.Output != nil {
		saw += r.Output.LastOutputAt.String()
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if saw != t.checks.saw {
		t.checks = recentChecks{saw: saw}
	}
	t.checks.times = append(t.checks.times, now)
	if over := len(t.checks.times) - maxChecks; over > 0 {
		t.checks.times = t.checks.times[over:]
	}

	switch {
	case r.Done || len(t.checks.times) < maxChecks || now.Sub(t.checks.times[0]) > checkWindow:
		return ""
	case t.run.SignalOnCompletion:
		return texts.Notified
	}
	return texts.Quiet
}
