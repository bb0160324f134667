package webui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	pageSession = "page"          // default session for calls and runs from the page
	waitForCall = 5 * time.Second // after this, a call that may be parked continues as a run, which has its own page
	maxCallForm = 1 << 20         // bytes of a form with arguments
	localTime   = "2006-01-02T15:04"
)

// A toolView is the content of the page of a tool.
type toolView struct {
	wire.Definition
	Form    form
	Schema  resultView // schema of the arguments
	Session string
	Title   string // title of a run
	Notify  bool   // notify the session of the run's end
	When    when
	Problem string // why nothing was done
	Result  *callResult
}

// when holds the time of a schedule, as typed.
type when struct {
	Cron, At, Timezone string
	Overlap            wire.Overlap
}

// tools shows the callable tools.
func (s *site) tools(*http.Request) (page, error) {
	return page{title: "Tools", menu: "/ui/tools", sections: []section{{"tools", s.service.AllDefinitions(pageSession)}}}, nil
}

// definition returns a callable tool.
func (s *site) definition(name string) (wire.Definition, error) {
	for _, d := range s.service.AllDefinitions(pageSession) {
		if d.Name == name {
			return d, nil
		}
	}
	if _, err := s.service.Lookup(name); err == nil {
		return wire.Definition{}, refuse(http.StatusForbidden, "The plugin of this tool lacks grants that it needs")
	}
	return wire.Definition{}, refuse(http.StatusNotFound, "There is no such tool")
}

func newToolView(d wire.Definition) toolView {
	return toolView{Definition: d, Form: newForm("args", d.InputSchema), Schema: newResultView(d.InputSchema), Session: pageSession, When: when{Timezone: "UTC"}}
}

func (v toolView) page() page {
	sections := []section{{"tool", v}, {"call", v}}
	if v.Result != nil {
		sections = []section{{"tool", v}, {"result", *v.Result}, {"call", v}}
	}
	return page{title: v.Name, menu: "/ui/tools", sections: sections}
}

// tool shows a tool, with the form to call it.
func (s *site) tool(r *http.Request) (page, error) {
	d, err := s.definition(r.PathValue("tool"))
	if err != nil {
		return page{}, err
	}
	return newToolView(d).page(), nil
}

// use calls a tool, spawns a run of it or schedules it, as the form says.
func (s *site) use(w http.ResponseWriter, r *http.Request) error {
	if err := readForm(w, r, maxCallForm); err != nil {
		return err
	}
	d, err := s.definition(r.PathValue("tool"))
	if err != nil {
		return err
	}

	v, posted := newToolView(d), r.PostForm
	v.Title, v.Notify = posted.Get("title"), posted.Get("notify") == "true"
	v.When = when{strings.TrimSpace(posted.Get("cron")), posted.Get("at"), posted.Get("timezone"), wire.Overlap(posted.Get("overlap"))}
	args, ok := v.Form.fill(posted)
	v.Session, err = sessionOf(posted)
	switch {
	case err != nil:
	case !ok:
		err = refuse(http.StatusUnprocessableEntity, "Nothing was called: some values are invalid")
	case v.Annotations.Destructive && posted.Get("sure") != "true":
		err = refuse(http.StatusUnprocessableEntity, "Nothing was called: confirm the call first") // that is not an approval
	}

	to := "" // page of the new run or schedule
	if err == nil {
		req := server.SpawnRequest{Tool: d.Name, Args: args, Title: v.Title, Silent: !v.Notify, By: operator}
		switch posted.Get("do") {
		case "spawn":
			to, err = s.spawn(r.Context(), v.Session, req)
		case "schedule":
			to, err = s.schedule(r.Context(), v.Session, req, v.When)
		default:
			to, v.Result, err = s.call(r.Context(), v.Session, req, d)
		}
	}
	if to != "" {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return nil
	}

	status := http.StatusOK
	if err != nil {
		p := s.explain(r, err)
		status, v.Problem = p.Status, p.Detail
	}
	return s.answer(w, r, status, v.page())
}

// sessionOf returns the session that a form names.
func sessionOf(posted url.Values) (string, error) {
	session := cmp.Or(strings.TrimSpace(posted.Get("session")), pageSession)
	if len(session) > maxSession || !utf8.ValidString(session) || strings.ContainsFunc(session, func(r rune) bool { return r < ' ' }) {
		return pageSession, refuse(http.StatusUnprocessableEntity, "The name of the session is too long, or not a text")
	}
	return session, nil
}

func (s *site) spawn(ctx context.Context, session string, req server.SpawnRequest) (to string, err error) {
	run, err := s.service.Session(session).Spawn(ctx, req)
	if err != nil {
		return "", err
	}
	s.Logger.Info("run started by an operator", "task_id", run.TaskID, "session", session, "tool", req.Tool)
	return "/ui/runs/" + run.TaskID, nil
}

func (s *site) schedule(ctx context.Context, session string, req server.SpawnRequest, at when) (to string, err error) {
	r := server.ScheduleRequest{SpawnRequest: req, Cron: at.Cron, Timezone: at.Timezone, Overlap: at.Overlap}
	if at.At != "" {
		zone, err := time.LoadLocation(cmp.Or(at.Timezone, "UTC"))
		if err != nil {
			return "", refuse(http.StatusUnprocessableEntity, "There is no such time zone. A name is for example Europe/Zurich")
		}
		if r.At, err = time.ParseInLocation(localTime, at.At, zone); err != nil {
			return "", refuse(http.StatusUnprocessableEntity, "Expected a time such as 2030-01-31T09:30")
		}
	}

	made, err := s.service.Session(session).Schedules().New(ctx, r)
	if err != nil {
		return "", err
	}
	s.Logger.Info("schedule made by an operator", "schedule_id", made.ScheduleID, "session", session, "tool", req.Tool)
	return "/ui/schedules#schedule-" + made.ScheduleID, nil
}

// A callResult is the result of a call.
type callResult struct {
	Failed  string // error, if the call failed
	Code    string // reason, in a word
	Result  resultView
	Content []block
	Output  string // end of the output
	Dropped int64  // bytes before Output
	Usage   abi.Usage
}

// call calls a tool and waits. A parked call is shown on the page of its run.
func (s *site) call(ctx context.Context, session string, req server.SpawnRequest, d wire.Definition) (to string, shown *callResult, err error) {
	var written tail
	var parked wire.Run
	call := server.Request{
		Session: session, Tool: req.Tool, Args: req.Args, Stdout: &written, Stderr: &written,
		ParkAfter: waitForCall, OnPark: func(run wire.Run) { parked = run }, AskLater: true, // the run's page asks the questions
	}

	result, err := s.service.Call(ctx, call)
	s.Logger.Info("tool called by an operator", "tool", req.Tool, "session", session, "kind", result.Kind)
	switch {
	case parked.TaskID != "":
		return "/ui/runs/" + parked.TaskID, nil, nil
	case err != nil && slices.Contains([]wire.Code{wire.CodeNotFound, wire.CodeDenied, wire.CodeClosing, wire.CodeCanceled}, server.ReasonOf(err).Code):
		return "", nil, err
	case err != nil && result.Kind == abi.Internal:
		s.Logger.Error("call failed", "session", session, "tool", req.Tool, "error", err)
	}

	shown = &callResult{Content: newBlocks(result.Content), Usage: result.Usage, Output: server.Clean(written.data), Dropped: written.dropped}
	if result.Kind == abi.Success {
		shown.Result = newResultView(result.Value)
		return "", shown, nil
	}
	shown.Failed, shown.Code = cut(result.Error, maxShown), strings.ReplaceAll(string(result.Kind), "_", " ")
	if err != nil && result.Kind == abi.Internal { // the page is for operators, who may see what is in the log
		shown.Failed += "\n\n" + cut(err.Error(), maxShown)
	}
	return "", shown, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	data    []byte
	dropped int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p[max(0, len(p)-2*maxOutput):]...)
	t.dropped += int64(max(0, len(p)-2*maxOutput))
	if more := len(t.data) - maxOutput; more > maxOutput {
		t.data = append(t.data[:0], t.data[more:]...)
		t.dropped += int64(more)
	}
	return len(p), nil
}
