package httpapi

import (
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
	limit, err := r.limit()
	if err != nil {
		return Runs{}, err
	}
	active, err := r.yes("active")
	if err != nil {
		return Runs{}, err
	}
	before := r.get("before")
	if before != "" && !runForm.MatchString(before) {
		return Runs{}, invalid("before", "expected an id: bg_ and 26 characters")
	}
	found, err := a.service.Runs().Runs(r.Context(), r.session, background.Query{Active: active, Before: before, Limit: limit + 1})
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
		out.Runs = append(out.Runs, newRun(run, now))
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
	for _, id := range ids {
		if !runForm.MatchString(id) {
			return Runs{}, invalid("id", "expected ids: bg_ and 26 characters")
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

// look waits for runs, if it is asked to, and returns them, and the ids the
// session does not have. If it has none of them, that is the error. The
// notices of runs that have ended stay as they are: who looks here need not be
// the agent that is to be told.
func (a *API) look(r *request, ids []string) (runs []Run, missing []string, err error) {
	req := background.CheckRequest{IDs: ids, Peek: true, Until: background.Until(r.get("until")), Cursor: r.get("cursor")}
	if req.Wait, err = r.duration("wait"); err != nil {
		return nil, nil, err
	}
	if req.MaxChars, err = r.number("tail", 0, 0, background.MaxChars); err != nil {
		return nil, nil, err
	}
	tail := req.MaxChars > 0
	if !tail {
		req.MaxChars = -1 // none
	}
	if req.Wait > 0 {
		release, err := a.occupy()
		if err != nil {
			return nil, nil, err
		}
		defer release()
	}
	checked, err := a.service.Runs().Check(r.Context(), r.session, req)
	if err != nil {
		return nil, nil, err
	}
	if checked.Missing != nil {
		missing = checked.Missing.IDs
	}
	for i, report := range checked.Reports {
		record := checked.Runs[i]
		run := newRun(record, time.Now())
		run.Args = background.Redact(record.Args)
		if run.WaitedSeconds = report.WaitedSeconds; tail {
			run.Output = report.Output
		}
		runs = append(runs, run)
	}
	return runs, missing, nil
}

// stop ends a run.
func (a *API) stop(r *request, in Stop) (background.Stopped, error) {
	id, err := r.run()
	if err != nil {
		return background.Stopped{}, err
	}
	return a.service.Runs().Stop(r.Context(), r.session, id, background.StopRequest{Force: in.Force, Reason: in.Reason, By: asker})
}
