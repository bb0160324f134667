package webui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxShown  = 16 << 10 // bytes of a result on a page
	maxIndent = 64 << 10 // largest result that is indented, in bytes

	maxChildren = 50 // newest children listed for a run
)

// A runView is the content of the page of a run.
type runView struct {
	wire.Run
	Result    resultView
	Content   []block
	Output    []piece
	Questions []questionView
	Repeats   bool // the run can be repeated
	Reads     bool // the tool reads messages
	Unread    int  // unread messages
	Children  runTable
	Calls     callTree
}

// A resultView is the result of a run, or the beginning of it.
type resultView struct {
	Text string // empty without a result
	Size int64
	Cut  bool
}

// run shows one run.
func (s *site) run(r *http.Request) (page, error) {
	v, err := s.readRun(r.Context(), r.PathValue("run"))
	if err != nil {
		return page{}, err
	}
	return v.page(), nil
}

func (s *site) readRun(ctx context.Context, id string) (runView, error) {
	run, err := s.service.AllSessions().WholeRun(ctx, id)
	switch {
	case notFound(err):
		return runView{}, errNoRun
	case err != nil:
		return runView{}, err
	}
	session := s.service.Session(run.Session)
	output, err := readOutput(ctx, session, run.TaskID)
	if err != nil {
		return runView{}, err
	}
	open, err := session.Questions(ctx, run.TaskID)
	if err != nil {
		return runView{}, err
	}

	if run.Diagnosis, err = session.Diagnosis(ctx, run.TaskID); err != nil {
		return runView{}, err
	}
	children, err := session.Runs(ctx, server.RunQuery{Parent: run.TaskID, Limit: maxChildren})
	if err != nil {
		return runView{}, err
	}

	called, err := session.Calls(ctx, run.TaskID)
	if err != nil && !notFound(err) {
		return runView{}, err
	}

	v := runView{
		Calls: newCallTree(run, called, time.Now()),
		Run:   run, Result: newResultView(run.Result), Content: newBlocks(run.Content), Output: output,
		Questions: newQuestions(run.TaskID, open), Children: newTable(children, tableAll),
	}
	d, err := s.definition(run.Tool)
	v.Repeats = err == nil && d.SupportsBackground && !run.ArgsIncomplete
	v.Reads = err == nil && d.ReadsMessages && !run.Status.Terminal()
	if !v.Reads {
		return v, nil
	}
	unread, err := session.Messages(ctx, run.TaskID)
	if !notFound(err) && err != nil {
		return runView{}, err
	}
	v.Unread = len(unread.Messages)
	return v, nil
}

func (v runView) page() page {
	return page{title: headingOf(v.Run), menu: "/ui/runs", sections: v.sections()}
}

func (v runView) sections() []section {
	return []section{{"run", v}, {"questions", v}, {"actions", v}, {"end", v}, {"inner-calls", v.Calls}, {"children", v.Children}, {"output", v}, {"details", v}}
}

// headingOf returns the title of a run. The default title only says that the tool runs in
// the background, so it is not used.
func headingOf(r wire.Run) string {
	if r.Title == "" || r.Title == "Background "+r.Tool {
		return r.Tool
	}
	return r.Title
}

// namedTool returns the tool of a run, unless the heading contains it.
func namedTool(r wire.Run) string {
	if headingOf(r) == r.Tool {
		return ""
	}
	return r.Tool
}

// Earlier reports whether there is output before the part shown.
func (v runView) Earlier() bool { return len(v.Output) > 0 && v.Output[0].From > 0 }

// newResultView indents a result for reading, and shortens it.
func newResultView(result json.RawMessage) resultView {
	text := []byte(result)
	if len(text) <= maxIndent {
		var b bytes.Buffer
		if json.Indent(&b, text, "", "  ") == nil {
			text = b.Bytes()
		}
	}
	return resultView{cut(string(text[:min(len(text), maxShown+1)]), maxShown), int64(len(result)), len(text) > maxShown}
}

// took returns how long a run took, or has taken so far.
func took(r wire.Run) string {
	if r.StartedAt.IsZero() {
		return "–"
	}
	return seconds(r.ElapsedSeconds)
}

// A state shows the state of a run by a word and a sign, not only by its color.
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
	case r.Status == wire.StatusQueued && r.Held != "":
		return state{"warn", "◷", "waits for " + r.Held}
	case r.Status == wire.StatusRunning:
		return state{"live", "▶", "running"}
	case r.Status == wire.StatusWaiting:
		return state{"wait", "◷", "waiting"}
	}
	return state{"wait", "…", string(r.Status)}
}

// kinds maps the kinds of errors whose names are not clear enough to clearer words.
var kinds = map[wire.ErrorKind]string{
	wire.KindTimeout: "time limit", wire.KindFuelExhausted: "out of fuel", wire.KindTrap: "crashed", wire.KindLimit: "run limit",
}

func wordOf(k wire.ErrorKind) string {
	return cmp.Or(kinds[k], strings.ReplaceAll(string(k), "_", " "))
}

// A bar shows the progress of a run.
type bar struct {
	Percent int // -1 if the total is unknown
	Counts  string
	Message string
}

// newBar returns nil for a run without progress.
func newBar(p *wire.Progress) *bar {
	switch {
	case p == nil:
		return nil
	case p.Total > 0:
		return &bar{int(100 * min(p.Done/p.Total, 1)), unit(number(p.Done)+" of "+number(p.Total), p.Unit), p.Message}
	case p.Done > 0:
		return &bar{-1, unit(number(p.Done), p.Unit), p.Message}
	}
	return &bar{-1, "", p.Message}
}

// unit returns the number n followed by its unit.
func unit(n, of string) string { return strings.TrimSpace(n + " " + of) }

// Doing returns what a run says about its work: the sentence for people, or its status.
func (v runView) Doing() string { return cmp.Or(v.Narration, v.Detail) }
