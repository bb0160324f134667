package webui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
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
	wire.Run
	Result resultView
	Output tail
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
	return &runPage{site: s, id: id}, nil
}

func (p *runPage) name() (title, menu string) { return cmp.Or(p.Title, "Run"), "/ui/runs" }

// changed takes progress from the event: reading the record for each report
// would read its arguments each time.
func (p *runPage) changed(e wire.Event) bool {
	switch {
	case progresses(&p.Run, e):
		return true
	case e.Kind != wire.EventMissed && (e.Run == nil || e.Run.TaskID != p.id):
		return false
	}
	p.known = false
	return true
}

func (p *runPage) read(ctx context.Context) ([]section, error) {
	if !p.known {
		run, err := p.site.service.AllSessions().WholeRun(ctx, p.id)
		if err != nil {
			return nil, err
		}

		p.Result = showResult(run.Result)
		run.Result, run.Content = nil, nil // they may be large
		p.known, p.Run = true, run
	}

	if err := p.Output.read(ctx, p.site.service.Session(p.Session), p.Run); err != nil {
		return nil, err
	}
	return p.sections(), nil
}

func (p *runPage) sections() []section {
	return []section{{"run", p}, {"stop", p}, {"end", p}, {"output", p}, {"facts", p}}
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

// took is how long a run has taken so far, or took in all.
func took(r wire.Run) string {
	if r.StartedAt.IsZero() {
		return "–"
	}
	return span(r.Elapsed(time.Now()))
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

// anyProgresses is progresses for one of several runs.
func anyProgresses(runs []wire.Run, e wire.Event) bool {
	for i := range runs {
		if progresses(&runs[i], e) {
			return true
		}
	}
	return false
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
