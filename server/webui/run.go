package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

const (
	maxShown  = 16 << 10 // bytes of a result on a page
	maxIndent = 64 << 10 // bytes of a result that is laid out for reading
)

// runPage shows one run.
type runPage struct {
	site *site
	id   string
	runView
	args   string
	result resultView
	output tail
	known  bool // the run is as it is, but for what beats tell
}

// A resultView is the result of a run, or its beginning.
type resultView struct {
	Text string // "": there is none
	Size int64
	Cut  bool
}

func (s *site) run(r *http.Request) (page, error) {
	id := r.PathValue("run")
	if !background.IsRunID(id) {
		return nil, background.ErrNotFound
	}
	return &runPage{site: s, id: id, output: tail{runs: s.service.Runs()}}, nil
}

func (p *runPage) name() (title, menu string) {
	if p.Title == "" {
		return "Run", "/ui/runs"
	}
	return p.Title, "/ui/runs"
}

// heard takes what a run says of itself from the event: to read the record for
// each piece of progress is to read its arguments each time.
func (p *runPage) heard(e background.Event) bool {
	switch {
	case e.Kind == background.EventMissed:
	case e.Run == nil || e.Run.ID != p.id:
		return false
	case e.Kind == background.EventBeat && e.Run.Attempt == p.Attempt && p.Status == background.StatusRunning:
		p.Beat = e.Run.Beat
		return true
	}
	p.known = false
	return true
}

func (p *runPage) look(ctx context.Context, now time.Time) ([]part, error) {
	if !p.known {
		run, err := p.site.service.Runs().AnyRun(ctx, p.id)
		if err != nil {
			return nil, err
		}
		p.known, p.Run = true, run
		if p.args == "" {
			p.args = background.Redact(run.Args)
		}
		p.result = showResult(run.Result)
		p.Run.Args, p.Run.Result, p.Run.Content = nil, nil, nil // which may be large
	}
	p.runView = newRunView(p.Run, now)
	if err := p.output.read(ctx, p.Run); err != nil {
		return nil, err
	}
	return p.parts()
}

func (p *runPage) parts() ([]part, error) {
	var c collect
	c.add(whole("run", p.runView))
	c.add(whole("stop", p.runView))
	c.add(whole("end", struct {
		runView
		Result resultView
	}{p.runView, p.result}))
	rows, err := p.output.rows()
	if err != nil {
		return nil, err
	}
	c.add(list("output", p.output.about(p.Run), rows))
	c.add(whole("facts", struct {
		runView
		Args string
	}{p.runView, p.args}))
	return c.parts, c.err
}

// showResult lays a result out for reading, and cuts it.
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
