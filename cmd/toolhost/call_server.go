package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

// callServer makes the call through a running server, and thus with its sessions, stores,
// limits and approvals. If the call continues in the background, callServer waits for it.
func (f *callFlags) callServer(ctx context.Context, a *app, answers flagAnswers) error {
	r, err := a.dial(f.flags)
	if err != nil {
		return err
	}
	defer r.close()

	limits := f.req.Limits
	result, err := r.client.Call(ctx, wire.Call{Tool: f.req.Tool, Args: f.req.Args, Limits: wire.CallLimits{
		Fuel: limits.Fuel, MemoryBytes: limits.Memory, TimeoutSeconds: limits.Timeout.Seconds(),
	}})
	if err != nil {
		return err
	}
	if id := backgroundOf(result); id != "" {
		if result, err = r.attendCall(ctx, f, id, answers); err != nil {
			return err
		}
	}
	if result.Kind != abi.Success {
		err = serverFailure(result)
	}
	return a.printCall(ctx, result, err, f.save)
}

// backgroundOf returns the id of the run as which a call continues, or "" if the call has
// ended.
func backgroundOf(r abi.Result) string {
	var run struct {
		Type   string `json:"type"`
		TaskID string `json:"task_id"`
	}
	if r.Kind != abi.Success || json.Unmarshal(r.Value, &run) != nil || run.Type != "background" || !wire.IsRunID(run.TaskID) {
		return ""
	}
	return run.TaskID
}

// limitCodes maps each limit that a call may reach to its code.
var limitCodes = map[abi.Limit]wire.Code{
	abi.LimitFuel: wire.CodeFuel, abi.LimitMemory: wire.CodeMemory, abi.LimitTime: wire.CodeTime, abi.LimitOutput: wire.CodeOutput,
}

// serverFailure returns the error of a call without a result.
func serverFailure(r abi.Result) error {
	if code, ok := limitCodes[r.Limit]; ok {
		return &wire.Problem{Code: code, Detail: r.Error}
	}
	return &toolError{r}
}

// attendCall waits for the run as which a call continues, and answers the run's questions.
func (r *remote) attendCall(ctx context.Context, f *callFlags, id string, answers flagAnswers) (abi.Result, error) {
	progress := newBar(r.err)
	found, err := r.waitFor(ctx, []string{id}, progress, r.question(f.req.Tool, true, answers, progress))
	if err != nil {
		if ctx.Err() != nil {
			r.notef("toolhost: the run continues: toolhost wait %s --session %s", id, oneLine(f.req.Session))
		}
		return abi.Result{}, err
	}
	if err := outcome(found); err != nil {
		return abi.Result{}, err
	}
	run := found.Runs[0]
	return abi.Result{Kind: abi.Success, Value: run.Result, Content: run.Content}, nil
}

var errUnanswered = errors.New("nobody answers the questions of the run here")

// answerRuns answers the questions of runs, if somebody is there to answer.
func (r *remote) answerRuns(ctx context.Context, runs []wire.Run, ask question) (err error) {
	for _, run := range runs {
		for _, key := range slices.Sorted(maps.Keys(run.Questions)) {
			switch one := r.answerQuestion(ctx, run, key, ask); {
			case errors.Is(one, errUnanswered):
				err = one
			case one != nil:
				return one
			}
		}
	}
	return err
}

// answerQuestion answers one question of a run. The server has appended the number of the
// round to the key that the tool chose.
func (r *remote) answerQuestion(ctx context.Context, run wire.Run, key string, ask question) error {
	if ask == nil {
		return errUnanswered
	}
	own := strings.TrimSuffix(strings.TrimRight(key, "0123456789"), ".")
	given, err := ask(ctx, abi.Questions{Questions: map[string]abi.Question{own: run.Questions[key]}})
	if errors.Is(err, host.ErrDenied) {
		return errUnanswered
	}
	if err != nil {
		return err
	}

	err = r.client.Answer(ctx, run.TaskID, map[string]abi.Answer{key: given.Answers[own]})
	if refused, ok := errors.AsType[*wire.Problem](err); ok && refused.Code == wire.CodeConflict {
		return nil // somebody else has answered it
	}
	return err
}
