package httpapi

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

// runs lists the runs of a session, or looks at some of them.
func (a *API) runs(r *request, _ none) (Runs, error) {
	if ids := r.URL.Query()["id"]; len(ids) > 0 {
		return a.named(r, ids)
	}
	for _, name := range []string{"wait", "until", "tail"} {
		if r.get(name) != "" {
			return Runs{}, invalid(name, "only with id")
		}
	}
	limit := r.number("limit")
	found, err := a.service.Runs().Runs(r.Context(), r.session, background.Query{
		Active: r.yes("active"), Before: r.get("before"), Limit: limit + 1,
	})
	if before := r.get("before"); err == nil && before != "" && len(found) == 0 { // it may be the end, or the run is gone: then nobody knows
		_, err = a.service.Runs().Get(r.Context(), r.session, before)
	}
	if err != nil {
		return Runs{}, err
	}
	out := Runs{Runs: make([]Run, 0, len(found))}
	if len(found) > limit {
		found = found[:limit]
		out.Next = found[limit-1].ID
	}
	now := time.Now()
	for _, run := range found {
		out.Runs = append(out.Runs, newRun(r.caller, run, now))
	}
	return out, nil
}

// named looks at the runs of a list of ids, in its order.
func (a *API) named(r *request, ids []string) (Runs, error) {
	for _, name := range []string{"limit", "before", "active"} {
		if r.get(name) != "" {
			return Runs{}, invalid(name, "not with id")
		}
	}
	runs, missing, err := a.look(r, ids)
	return Runs{Runs: runs, Missing: missing}, err
}

// getRun returns one run.
func (a *API) getRun(r *request, _ none) (Run, error) {
	id, err := r.run()
	if err != nil {
		return Run{}, err
	}
	runs, _, err := a.look(r, []string{id})
	if err != nil {
		return Run{}, err
	}
	return runs[0], nil
}

// look waits for runs, if it is asked to, until they end or one of them waits for
// its user, and returns them, and the ids the session does not have. If it has
// none of them, that is the error. Of several runs, what is large is left out;
// one alone has room in what its client may leave untaken, or is refused. The
// notices of runs that have ended stay as they are: who looks here need not be
// the agent that is to be told.
func (a *API) look(r *request, ids []string) (runs []Run, missing []string, err error) {
	req := background.CheckRequest{
		IDs: ids, Peek: true, Until: background.Until(r.get("until")), Cursor: r.get("cursor"),
		Wait: r.duration("wait"), MaxChars: r.number("tail"),
	}
	tail := req.MaxChars > 0
	if !tail {
		req.MaxChars = -1 // none
	}
	if req.Wait > 0 {
		release, err := a.occupy(r.Request)
		if err != nil {
			return nil, nil, err
		}
		defer release()
	}
	room, full := maxResults, error(nil)
	req.Each = func(record background.Run, report *background.Report) {
		report.Result, report.Content = nil, nil // the record has them
		var result, content int                  // bytes that are left out
		if len(ids) > 1 {
			result, content = fit(&record.Result, &room), fit(&record.Content, &room)
		} else if full = r.w.hold(len(record.Result) + len(record.Content)); full != nil {
			return
		}
		run := newRun(r.caller, record, time.Now())
		run.Args, run.ResultBytes, run.ContentBytes = background.Redact(record.Args), result, content
		runs = append(runs, run)
	}
	checked, err := a.service.Check(r.Context(), r.session, req)
	if err == nil {
		err = full
	}
	if err != nil {
		return nil, nil, err
	}
	if checked.Missing != nil {
		missing = checked.Missing.IDs
	}
	for i, report := range checked.Reports {
		if runs[i].WaitedSeconds = report.WaitedSeconds; tail {
			runs[i].Output = report.Output
		}
		if !runs[i].Done {
			if runs[i].Questions, err = a.service.Questions(r.Context(), r.session, runs[i].TaskID); err != nil {
				return nil, nil, err
			}
		}
	}
	return runs, missing, nil
}

// maxResults is how many bytes the results and the content of several runs take in
// one answer.
const maxResults = 1 << 20

// fit drops a part of a record that there is no room for, and returns how large
// it was.
func fit(part *json.RawMessage, room *int) (dropped int) {
	if n := len(*part); n > *room {
		*part = nil
		return n
	}
	*room -= len(*part)
	return 0
}

// answer answers questions of a run.
func (a *API) answer(r *request, in Answers) (none, error) {
	id, err := r.run()
	if err != nil {
		return none{}, err
	}
	if len(in.Answers) == 0 {
		return none{}, invalid("answers", "required")
	}
	open, err := a.service.Questions(r.Context(), r.session, id)
	if err != nil {
		return none{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(in.Answers)) {
		if _, ok := open[key]; !ok {
			return none{}, refuse(CodeConflict, "%q is not asked, or not any more: read the run again", clip(key))
		}
	}
	return none{}, a.service.Answer(r.Context(), r.session, id, in.Answers)
}

// stop ends a run.
func (a *API) stop(r *request, in Stop) (background.Stopped, error) {
	id, err := r.run()
	if err != nil {
		return background.Stopped{}, err
	}
	return a.service.Runs().Stop(r.Context(), r.session, id, background.StopRequest{Force: in.Force, Reason: in.Reason, By: asker})
}
