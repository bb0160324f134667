package background

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
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

	// Each is called with each report as it is made and the record it is of, in
	// the order of the ids. The check keeps no record, and of a report what Each
	// leaves: a result may have megabytes. It has to be quick, and not to check
	// itself: other checks wait for it. Nil leaves all.
	Each func(run Run, r *Report)

	// Enough ends the wait when it is closed: there is something else to see than
	// an end. Nil never does.
	Enough <-chan struct{}
}

// A Checked is the answer to a check. Reports are in the order of the ids.
type Checked struct {
	Reports []Report
	Missing *NotFoundError // the ids the session does not have; nil if it has all
}

// A Report is what an agent is shown of one run. Absent fields are left out of
// its JSON.
type Report struct {
	TaskID            string          `json:"task_id"`
	Tool              string          `json:"tool"`
	Title             string          `json:"title"`
	Status            Status          `json:"status"`
	Done              bool            `json:"done"`              // the status is terminal, and stored
	Unsaved           bool            `json:"unsaved,omitempty"` // the run has ended, and that is not stored yet: see Run.Unsaved
	Stopping          bool            `json:"stopping,omitempty"`
	ElapsedSeconds    float64         `json:"elapsed_seconds"` // since the start, to the end; to a tenth
	Detail            string          `json:"detail,omitempty"`
	Progress          *Progress       `json:"progress,omitempty"`
	Output            *OutputReport   `json:"output,omitempty"`
	ExitCode          *int            `json:"exit_code,omitempty"`
	Result            json.RawMessage `json:"result,omitempty"`
	Content           json.RawMessage `json:"content,omitempty"`     // what the work showed beside Result or Error
	ResultPath        string          `json:"result_path,omitempty"` // see Run.ResultPath; when done
	Error             *RunError       `json:"error,omitempty"`
	ArtifactError     string          `json:"artifact_error,omitempty"` // what of the run could not be stored
	Summary           string          `json:"summary,omitempty"`
	WaitedSeconds     float64         `json:"waited_seconds,omitempty"`      // how long the check waited
	DeadlineInSeconds float64         `json:"deadline_in_seconds,omitempty"` // until a running run is ended as failed with KindTimeout
	LogPath           string          `json:"log_path,omitempty"`            // see Run.LogPath; when done
	Next              string          `json:"next,omitempty"`                // advice, when checking again and again brings nothing
}

// An OutputReport is a part of a run's output, cleaned as by [Clean].
type OutputReport struct {
	Text         string    `json:"text"`
	Cursor       string    `json:"cursor"`                  // give it to the next check to see what comes after Text
	OmittedBytes int64     `json:"omitted_bytes,omitempty"` // between the cursor, or the beginning, and Text
	PendingBytes int64     `json:"pending_bytes,omitempty"` // after Text, not shown yet
	LastOutputAt time.Time `json:"last_output_at,omitzero"`
	Note         string    `json:"note,omitempty"`
}

// Check reports on runs of a session, and waits for their end first if asked
// to. Reading changes nothing: the same check gives the same answer until the
// run goes on. Only the notice of an end that is shown, and is stored, is taken
// back, unless the request is to Peek. A wait ends with the end of a run whether
// that can be stored or not; the next one waits until it is. The third equal check within 10 seconds is advised to
// do something else.
//
// If the session has none of the runs, the error is a *[NotFoundError]; if it
// has some, Check waits for those and the others are in Missing. A bad request
// is a *[FieldError]. If ctx ends while waiting, the error is its.
func (m *Manager) Check(ctx context.Context, session string, req CheckRequest) (Checked, error) {
	after, chars, err := req.normalize()
	if err != nil {
		return Checked{}, fmt.Errorf("check: %w", err)
	}
	known, missing, err := m.find(ctx, session, req.IDs, req.keeps())
	if err != nil {
		return Checked{}, fmt.Errorf("check: %w", err)
	}
	if !req.Peek {
		defer m.unwatch(watch(known))
	}
	began := time.Now()
	if req.Wait > 0 {
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		if err := await(ctx, timer.C, req.Enough, known, req.Until, (*task).news); err != nil {
			return Checked{}, fmt.Errorf("check: waiting: %w", err)
		}
	}
	waited := time.Since(began)
	checked := Checked{Missing: missing}
	var ended []handle
	for i := range known {
		report, err := m.reportOne(ctx, session, &known[i], after, chars, req.Each)
		if unknown, gone := errors.AsType[*NotFoundError](err); gone { // while the others were waited for
			if checked.Missing == nil {
				checked.Missing = &NotFoundError{Active: unknown.Active}
			}
			checked.Missing.IDs = append(checked.Missing.IDs, known[i].id)
			continue
		}
		if err != nil {
			return Checked{}, fmt.Errorf("check: %w", err)
		}
		report.WaitedSeconds = tenths(waited)
		if !req.Peek && known[i].task != nil {
			report.Next = cmp.Or(report.Next, known[i].task.look(report))
		}
		if report.Done {
			ended = append(ended, known[i])
		}
		if report.Unsaved {
			known[i].task.shown.Store(true)
		}
		checked.Reports = append(checked.Reports, report)
	}
	if len(checked.Reports) == 0 {
		return Checked{}, fmt.Errorf("check: %w", checked.Missing)
	}
	if !req.Peek {
		m.saw(ctx, session, ended)
	}
	return checked, nil
}

// maxKnown is how large a record may be, in bytes, that is kept from when it is
// found. A larger one is read again, in turn: all of them together may be very
// large.
const maxKnown = 64 << 10

// keeps is how large a record may be that is kept from when it is found: none is
// during a wait, which may be long.
func (r *CheckRequest) keeps() int64 {
	if r.Wait > 0 {
		return -1
	}
	return maxKnown
}

// normalize checks the request, brings it into bounds, and returns its cursor
// and number of characters.
func (r *CheckRequest) normalize() (after *cursor, chars int, err error) {
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
		c, err := parseCursor(r.Cursor)
		if err != nil {
			return nil, 0, err
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

// distinct returns the ids without repetitions, in a slice of its own.
func distinct(ids []string) []string {
	var out []string
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// reportOne reports on one run, and has it seen by each. Of the record no more is
// kept in h than its notice. Large ones are looked at in turn: so many of them are
// held at once as there are processors, and those who look at small ones wait for
// nobody.
func (m *Manager) reportOne(ctx context.Context, session string, h *handle, after *cursor, chars int, each func(Run, *Report)) (report Report, err error) {
	if !h.large {
		report, err = m.report(ctx, session, h, after, chars)
		if h.large = h.run.payload() > maxKnown; h.large { // it was not, when it was found: it is let go
			h.run = Run{}
		}
	}
	if err == nil && h.large {
		select {
		case m.looking <- struct{}{}:
			defer func() { <-m.looking }()
		case <-ctx.Done():
			return Report{}, ctx.Err()
		}
		report, err = m.report(ctx, session, h, after, chars)
	}
	if err == nil && each != nil {
		each(h.run, &report)
	}
	h.run = Run{Notice: h.run.Notice}
	return report, err
}

// report looks at one run, and leaves in h what it saw.
func (m *Manager) report(ctx context.Context, session string, h *handle, after *cursor, chars int) (Report, error) {
	for {
		live := h.task != nil && h.task.live.Load() // before the record, so that both are of one attempt
		run, t, err := m.relook(ctx, session, *h)
		if err != nil {
			return Report{}, err
		}
		h.run, h.task = run, t
		report := newReport(run, time.Now())
		tail := func(offset int64, max int) (Chunk, error) {
			c, err := m.tail(ctx, h.id, t, offset, max)
			if errors.Is(err, ErrNotFound) && run.Status.Terminal() { // its record is gone by now, see relook, and its log too
				return Chunk{Offset: run.OutputBytes, End: run.OutputBytes}, nil
			}
			return c, err
		}
		if report.Output, err = readOutput(run, tail, after, chars); err != nil {
			return Report{}, fmt.Errorf("reading the output of run %s: %w", h.id, err)
		}
		if t == nil || live == t.live.Load() {
			return report, nil
		}
	}
}

func newReport(run Run, now time.Time) Report {
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
		Result:         run.Result,
		Content:        run.Content,
		Error:          run.Error,
		Summary:        run.Summary,
	}
	if r.Done {
		r.LogPath, r.ResultPath, r.ArtifactError = run.LogPath(), run.ResultPath(), run.ArtifactError
	}
	if run.Unsaved {
		r.Next = nextUnsaved
	}
	if run.Status == StatusRunning {
		r.DeadlineInSeconds = tenths(max(0, run.Timeout-elapsed))
	}
	return r
}

// tenths returns d in seconds, to a tenth.
func tenths(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }

// What is looked at three times within lookWindow, and does not change, gets a
// word of advice.
const (
	lookWindow = 10 * time.Second
	maxLooks   = 3
	nextQuiet  = "nothing new. Wait with wait_seconds, or go on with other work."
	nextTold   = "nothing new; you will be notified. Wait with wait_seconds, or go on with other work."

	// nextUnsaved is advice on a run whose end is not stored.
	nextUnsaved = "This result is not stored yet (is the disk full?): a crash would lose it. Check again until done is true."
)

// looks are the last checks of a run in a row that saw the same.
type looks struct {
	saw   string
	times []time.Time // of the last ones, at most maxLooks
}

// look notes a check and returns what to do next, if it is one of many that
// see the same.
func (t *task) look(r Report) (next string) {
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
	if saw != t.looks.saw {
		t.looks = looks{saw: saw}
	}
	t.looks.times = append(t.looks.times, now)
	if over := len(t.looks.times) - maxLooks; over > 0 {
		t.looks.times = t.looks.times[over:]
	}
	if r.Done || len(t.looks.times) < maxLooks || now.Sub(t.looks.times[0]) > lookWindow {
		return ""
	}
	if t.run.SignalOnCompletion {
		return nextTold
	}
	return nextQuiet
}
