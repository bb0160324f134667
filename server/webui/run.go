package webui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxShown  = 16 << 10 // bytes of a result on a page
	maxIndent = 64 << 10 // bytes of a result that is indented
)

// runPage shows one run.
type runPage struct {
	site *site
	id   string
	runView
	result resultView
	output tail
	known  bool // the run is up to date
}

// A resultView is the result of a run, or its beginning.
type resultView struct {
	Text string // empty: there is none
	Size int64
	Cut  bool
}

func (s *site) run(r *http.Request) (page, error) {
	id := r.PathValue("run")
	if !wire.IsRunID(id) {
		return nil, errNoRun
	}
	return &runPage{site: s, id: id, output: tail{service: s.service}}, nil
}

func (p *runPage) name() (title, menu string) { return cmp.Or(p.Title, "Run"), "/ui/runs" }

// changed takes progress from the event: reading the record for each report
// would read its arguments each time.
func (p *runPage) changed(e wire.Event) bool {
	switch {
	case e.Kind == wire.EventMissed:
	case e.Run == nil || e.Run.TaskID != p.id:
		return false
	case progresses(&p.Run, e):
		return true
	}
	p.known = false
	return true
}

func (p *runPage) read(ctx context.Context, now time.Time) ([]part, error) {
	if !p.known {
		run, err := p.site.service.AllSessions().WholeRun(ctx, p.id)
		if err != nil {
			return nil, err
		}
		p.result = showResult(run.Result)
		run.Result, run.Content = nil, nil // they may be large
		p.known, p.Run = true, run
	}

	p.runView = newRunView(p.Run, now)
	if err := p.output.read(ctx, p.Run); err != nil {
		return nil, err
	}
	return p.parts()
}

func (p *runPage) parts() ([]part, error) {
	rows, err := p.output.rows()
	if err != nil {
		return nil, err
	}

	var c collect
	c.add(whole("run", p.runView))
	c.add(whole("stop", p.runView))
	c.add(whole("end", struct {
		runView
		Result resultView
	}{p.runView, p.result}))
	c.add(list("output", p.output.about(p.Run), rows))
	c.add(whole("facts", p.runView))
	return c.parts, c.err
}

// showResult indents a result for reading, and cuts it.
func showResult(result json.RawMessage) resultView {
	text := []byte(result)
	if len(text) <= maxIndent {
		var b bytes.Buffer
		if json.Indent(&b, text, "", "  ") == nil {
			text = b.Bytes()
		}
	}
	return resultView{cut(string(text[:min(len(text), maxShown+1)]), maxShown), int64(len(result)), len(text) > maxShown}
}

// A runView is a run as pages show it.
type runView struct {
	wire.Run
	State    state
	Bar      *bar
	Took     time.Duration // so far, or in all; 0 if it never started
	Created  *moment
	Started  *moment
	Finished *moment
	Due      *moment // of a scheduled run
}

func newRunView(r wire.Run, now time.Time) runView {
	return runView{
		Run: r, State: stateOf(r), Bar: newBar(r.Progress), Took: r.Elapsed(now),
		Created: at(r.CreatedAt, now), Started: at(r.StartedAt, now), Finished: at(r.FinishedAt, now), Due: at(r.ScheduledFor, now),
	}
}

// runRows renders rows of runs.
func runRows(template string, runs []wire.Run, now time.Time) ([]row, error) {
	return newRows(template, runs, func(r wire.Run) (string, any) { return "run-" + r.TaskID, newRunView(r, now) })
}

// progresses brings a run up to date with an event of its progress, and reports
// whether it could: pages do not read runs again for each piece of progress.
func progresses(r *wire.Run, e wire.Event) bool {
	if e.Kind != wire.EventBeat || r.TaskID != e.Run.TaskID || r.Attempt != e.Run.Attempt || r.Status != wire.StatusRunning {
		return false
	}
	r.Detail, r.Progress, r.LastOutputAt, r.OutputBytes = e.Run.Detail, e.Run.Progress, e.Run.LastOutputAt, e.Run.OutputBytes
	return true
}

// progressesOne is progresses for one of several runs.
func progressesOne(runs []wire.Run, e wire.Event) bool {
	if e.Kind != wire.EventBeat {
		return false
	}
	i := slices.IndexFunc(runs, func(r wire.Run) bool { return r.TaskID == e.Run.TaskID })
	return i >= 0 && progresses(&runs[i], e)
}

// A state shows how a run is by a word and a sign, never by its color alone.
type state struct{ Class, Sign, Word string }

func stateOf(r wire.Run) state {
	if r.Unsaved {
		r.Unsaved = false
		return state{"warn", "◌", stateOf(r).Word + ", not stored yet"}
	}

	switch {
	case r.Status == wire.StatusSucceeded:
		return state{"good", "✓", "succeeded"}
	case r.Status == wire.StatusCanceled:
		return state{"off", "■", "canceled"}
	case r.Status == wire.StatusFailed && r.Error != nil:
		return state{"bad", "✗", "failed: " + wordOf(r.Error.Kind)}
	case r.Status == wire.StatusFailed:
		return state{"bad", "✗", "failed"}
	case r.Stopping != nil:
		return state{"warn", "◌", "stopping"}
	case r.Status == wire.StatusRunning:
		return state{"live", "▶", "running"}
	}
	return state{"wait", "…", string(r.Status)}
}

// kinds are words for kinds of errors whose names do not say enough.
var kinds = map[wire.ErrorKind]string{
	wire.KindTimeout: "time limit", wire.KindFuelExhausted: "out of fuel", wire.KindTrap: "crashed", wire.KindLimit: "run limit",
}

func wordOf(k wire.ErrorKind) string { return cmp.Or(kinds[k], spaced(string(k))) }

// A bar is the progress of a run.
type bar struct {
	Percent int // -1: the total is unknown
	Counts  string
	Message string
}

// newBar returns nil for a run that reports no progress.
func newBar(p *wire.Progress) *bar {
	switch {
	case p == nil:
		return nil
	case p.Total > 0:
		return &bar{int(100 * min(p.Done/p.Total, 1)), number(p.Done) + " of " + number(p.Total), p.Message}
	case p.Done > 0:
		return &bar{-1, number(p.Done), p.Message}
	}
	return &bar{-1, "", p.Message}
}
