package httpapi

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	// asker is the requester in records of requests of HTTP clients.
	asker = "api"
	// maxResults limits the results and the content of several runs in one response,
	// in bytes.
	maxResults = 1 << 20
)

// spawnBody is a [wire.Spawn] whose arguments are checked while the body is read.
type spawnBody struct {
	wire.Spawn
	Args server.Args `json:"args"`
}

// spawnRun starts a run.
func spawnRun(r *request, in spawnBody) (status int, run wire.Run, err error) {
	req, err := spawnRequest(in.Spawn, in.Args)
	if err != nil {
		return 0, run, err
	}
	if req.IdempotencyKey, err = r.key(); err != nil {
		return 0, run, err
	}
	run, err = r.session.Spawn(r.Context(), req)
	if err != nil || run.DryRun || !run.Reused {
		return r.created(run, err)
	}

	if run, err = r.session.WholeRun(r.Context(), run.TaskID); err != nil { // the client may not have the result yet
		return 0, run, err
	}
	run.Reused = true
	r.w.Header().Set("Location", "/v1/runs/"+run.TaskID)
	return http.StatusOK, r.shown(run), nil
}

// rerun starts a run with the arguments of an earlier one.
func rerun(r *request, _ none) (status int, run wire.Run, err error) {
	if err := r.noKey("each request starts another run. To use a key, start the run with POST /v1/runs"); err != nil {
		return 0, run, err
	}
	run, err = r.session.Rerun(r.Context(), r.PathValue("run"), asker)
	return r.created(run, err)
}

// created responds with a new run.
func (r *request) created(run wire.Run, err error) (int, wire.Run, error) {
	if err != nil {
		return 0, wire.Run{}, err
	}
	if run.DryRun {
		return http.StatusOK, r.planned(run), nil
	}
	r.w.Header().Set("Location", "/v1/runs/"+run.TaskID)
	return http.StatusCreated, r.shown(run), nil
}

// planned returns the run that a dry run would start.
func (r *request) planned(run wire.Run) wire.Run {
	run.Session, run.CreatedAt = r.caller.Session, time.Now().UTC()
	run.Status, run.Origin = wire.StatusQueued, wire.OriginSpawned
	if run.ScheduleID != "" {
		run.Origin = wire.OriginScheduled
	}
	return run
}

func spawnRequest(in wire.Spawn, args server.Args) (server.SpawnRequest, error) {
	timeout, err := seconds("timeout_seconds", in.TimeoutSeconds)
	if err == nil && in.Tool == "" {
		err = errNoTool
	}
	return server.SpawnRequest{
		Tool: in.Tool, Parsed: args, Title: in.Title, Timeout: timeout, By: asker, Parent: in.Parent, Locale: in.Locale,
		Silent: in.SignalOnCompletion != nil && !*in.SignalOnCompletion, Wake: in.Wake,
	}, err
}

// seconds converts a number of seconds to a duration.
func seconds(field string, n float64) (time.Duration, error) {
	if n < 0 || n > math.MaxInt32 {
		return 0, invalid(field, "expected a number of seconds")
	}
	return time.Duration(n * float64(time.Second)), nil
}

// shown returns a run as its caller sees it: without the user's key in the session name.
func (r *request) shown(run wire.Run) wire.Run {
	run.Session = r.caller.SessionName(run.Session)
	return run
}

// listRuns returns a page of the session's runs, or the runs with the given ids.
func listRuns(r *request, _ none) (wire.Runs, error) {
	if ids := r.URL.Query()["id"]; len(ids) > 0 {
		if err := r.absent("not with id", append(filterNames(), "limit", "before", "active", "parent", allSessions)...); err != nil {
			return wire.Runs{}, err
		}
		return checkRuns(r, ids)
	}
	if err := r.absent("only with id", "wait", "until", "tail"); err != nil {
		return wire.Runs{}, err
	}

	limit, before := r.number("limit", defaultPage), r.get("before")
	found, err := r.session.Runs(r.Context(), server.RunQuery{Parent: r.get("parent"), Active: r.get("active") == "true", Before: before, Limit: limit + 1, RunFilter: r.filter()})
	if err == nil && before != "" && len(found) == 0 { // the list ends here, or that run was removed, which is an error
		_, err = r.session.Run(r.Context(), before)
	}
	if err != nil {
		return wire.Runs{}, err
	}

	var out wire.Runs
	if len(found) > limit {
		found = found[:limit]
		out.Next = found[limit-1].TaskID
	}
	for i := range found {
		found[i] = r.shown(found[i])
	}
	out.Runs = found
	return out, nil
}

// absent refuses parameters that cannot be combined with others.
func (r *request) absent(why string, names ...string) error {
	for _, name := range names {
		if r.get(name) != "" {
			return invalid(name, "%s", why)
		}
	}
	return nil
}

// getRun returns one run.
func getRun(r *request, _ none) (wire.Run, error) {
	if r.get(allSessions) == "true" {
		found, err := r.session.Run(r.Context(), r.PathValue("run"))
		if err != nil {
			return wire.Run{}, err
		}
		r.session = r.api.service.Session(found.Session)
	}

	out, err := checkRuns(r, []string{r.PathValue("run")})
	if err != nil {
		return wire.Run{}, err
	}

	run := out.Runs[0]
	if r.caller.Operator() {
		run.Diagnosis, err = r.session.Diagnosis(r.Context(), run.TaskID)
	}
	return run, err
}

// checkRuns returns runs, after waiting for them if the request says so. Their notices
// stay pending: the client need not be the agent that is to be notified.
func checkRuns(r *request, ids []string) (wire.Runs, error) {
	req := server.CheckRequest{
		IDs: ids, Until: r.get("until"), Cursor: r.get("cursor"), Wait: r.duration("wait"), MaxChars: r.number("tail", 0),
	}
	if len(ids) > 1 {
		req.Large = maxResults
	}

	out, err := r.session.Check(r.Context(), req)
	for i := range out.Runs {
		out.Runs[i] = r.shown(out.Runs[i])
	}
	return out, err
}

// listRunCalls returns the calls that the tool of a run made.
func listRunCalls(r *request, _ none) (wire.InnerCalls, error) {
	return r.session.Calls(r.Context(), r.PathValue("run"))
}

// removeRun removes a run that has ended.
func removeRun(r *request, _ none) (none, error) {
	return none{}, r.session.Remove(r.Context(), r.PathValue("run"))
}

// stopRun stops a run.
func stopRun(r *request, in wire.Stop) (wire.Stopped, error) {
	return r.session.Stop(r.Context(), r.PathValue("run"), asker, in)
}

// answerRun passes a person's answers to the questions of a run.
func answerRun(r *request, in wire.Answers) (none, error) {
	if len(in.Answers) == 0 {
		return none{}, invalid("answers", "required")
	}

	id := r.PathValue("run")
	open, err := r.session.Questions(r.Context(), id)
	if err != nil {
		return none{}, err
	}

	for _, key := range slices.Sorted(maps.Keys(in.Answers)) {
		if _, ok := open[key]; !ok {
			return none{}, refuse(wire.CodeConflict, "the question %q is not open: read the run again", clip(key))
		}
	}
	return none{}, r.session.Answer(r.Context(), id, in.Answers)
}
