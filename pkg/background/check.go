package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Until says whether a check of several runs waits for one of them or for all.
type Until string

// The values of Until. The zero value is UntilAny.
const (
	UntilAny Until = "any" // the first run to end
	UntilAll Until = "all" // all runs
)

// A CheckRequest is a request to check runs. Only IDs is required.
type CheckRequest struct {
	IDs      []string      // ids of 1 to MaxIDs runs; duplicates count once
	Wait     time.Duration // how long to wait for the runs to end; clamped to 0 … MaxWait
	Until    Until         // "": UntilAny
	Cursor   string        // cursor of an earlier report, to show only the output after it; only with a single id; "": the latest output
	MaxChars int           // characters of output for each run; 0: DefaultChars; at most MaxChars; negative: no output
	Peek     bool          // the caller is not the session's agent: notices stay pending

	// Enough ends the wait when it is closed. Nil never does.
	Enough <-chan struct{}
}

// A CheckResult is the result of a check. Reports are in the order of the ids.
type CheckResult struct {
	Reports []Report
	Waited  time.Duration  // how long the check waited
	Missing *NotFoundError // the ids that the session does not have; nil if it has all
}

// A Report describes a run at the time of a check, without its payload.
type Report struct {
	engine.Run                 // without its Diagnosis
	Output     *output.Excerpt // nil if no output was requested
	Repeated   bool            // at least two earlier checks within 10 seconds found the same
}

// Check reports on runs of a session, and waits for their end first if asked to. Reading
// changes nothing: the same check gives the same result until the run changes. The only
// exception: showing a stored end acknowledges its notice, unless the request sets Peek.
// A wait ends when a run has ended, even if the end cannot be stored; the next wait then
// ends when it is stored.
//
// If the session has none of the runs, the error is a *[NotFoundError]; if it has some
// of them, Check waits for those and lists the others in Missing. For a bad request the
// error is a *[FieldError]. If ctx ends while waiting, Check returns its error.
func (m *Manager) Check(ctx context.Context, session string, req CheckRequest) (CheckResult, error) {
	after, err := req.normalize()
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
		w := waitLimits{until: req.Until, most: req.Wait, enough: req.Enough, saved: true}
		if err := m.reader.await(ctx, session, known, w); err != nil {
			return CheckResult{}, fmt.Errorf("check: waiting: %w", err)
		}
	}

	checked := CheckResult{Reports: make([]Report, 0, len(known)), Missing: missing, Waited: time.Since(began)}

	var ended []engine.Run
	for _, h := range known {
		report, err := m.reader.report(ctx, session, h, req, after)
		if gone, ok := errors.AsType[*NotFoundError](err); ok { // while Check waited for the others
			checked.Missing = checked.Missing.add(gone)
			continue
		}
		if err != nil {
			return CheckResult{}, fmt.Errorf("check: %w", err)
		}
		if report.Final() {
			ended = append(ended, report.Run)
		}
		checked.Reports = append(checked.Reports, report)
	}
	if len(checked.Reports) == 0 {
		return CheckResult{}, fmt.Errorf("check: %w", checked.Missing)
	}

	if !req.Peek {
		m.notifier.seen(ctx, ended)
	}
	return checked, nil
}

// normalize validates the request, clamps its values, and returns its cursor.
func (r *CheckRequest) normalize() (after *output.Cursor, err error) {
	r.IDs = distinct(r.IDs)
	r.Wait = min(max(r.Wait, 0), MaxWait)
	r.MaxChars = min(r.MaxChars, MaxChars)
	if r.MaxChars == 0 {
		r.MaxChars = DefaultChars
	}

	switch {
	case len(r.IDs) == 0:
		return nil, &FieldError{"task_id", "required"}
	case len(r.IDs) > MaxIDs:
		return nil, &FieldError{"task_ids", fmt.Sprintf("more than %d", MaxIDs)}
	case r.Until != "" && r.Until != UntilAny && r.Until != UntilAll:
		return nil, &FieldError{"until", `must be "any" or "all"`}
	case r.Cursor == "":
		return nil, nil
	case len(r.IDs) > 1:
		return nil, &FieldError{"cursor", "only for a single task_id"}
	}

	c, err := output.ParseCursor(r.Cursor)
	if err != nil {
		return nil, &FieldError{"cursor", err.Error()}
	}
	return &c, nil
}

// distinct returns the ids without duplicates, in a new slice.
func distinct(ids []string) []string {
	var out []string
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// report reports on one run.
func (r *reader) report(ctx context.Context, session string, h handle, req CheckRequest, after *output.Cursor) (Report, error) {
	id := h.run.ID
	h, err := r.relook(ctx, session, h)
	if err != nil {
		return Report{}, err
	}

	var excerpt *output.Excerpt
	h, err = r.steady(ctx, session, h, func(h handle) (err error) {
		excerpt, err = output.Read(h.run, func(offset int64, max int) (engine.Chunk, error) {
			chunk, err := r.tail(ctx, h, offset, max)
			if errors.Is(err, engine.ErrNotFound) && h.run.Status.Terminal() { // its record is gone, and so is its log
				return engine.Chunk{Offset: h.run.OutputBytes, End: h.run.OutputBytes}, nil
			}
			return chunk, err
		}, after, req.MaxChars)
		return err
	})
	if err != nil {
		return Report{}, fmt.Errorf("reading the output of run %s: %w", id, err)
	}

	report := Report{Run: h.run, Output: excerpt}
	report.Diagnosis = nil // operators may see it, models may not
	if h.task != nil && !req.Peek {
		report.Repeated = h.task.repeated(report)
	}
	if report.Unsaved {
		h.task.shown.Store(true)
	}
	return report, nil
}

// A check is repeated if this many checks of the run found the same within this time.
const (
	repeatedChecks = 3
	repeatedWithin = 10 * time.Second
)

// recentChecks are the latest checks of a run that found the same.
type recentChecks struct {
	status   engine.Status
	stopping bool
	beat     engine.Beat
	times    [repeatedChecks]time.Time // times of the latest checks, the last one at the end
}

// repeated records a check, and reports whether it is one of several that found
// the same.
func (t *task) repeated(r Report) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, beat := &t.checks, r.Beat
	beat.Cost = engine.Cost{} // it changes all the time
	if c.status != r.Status || c.stopping != (r.Cancel != nil) || !c.beat.Equal(beat) {
		*c = recentChecks{status: r.Status, stopping: r.Cancel != nil, beat: beat}
	}

	copy(c.times[:], c.times[1:])
	c.times[repeatedChecks-1] = time.Now()
	return !c.times[0].IsZero() && c.times[repeatedChecks-1].Sub(c.times[0]) <= repeatedWithin
}
