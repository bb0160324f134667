package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

// callServer makes the call through a running server: with its sessions, stores, limits and
// approvals. A call that continues in the background is waited for.
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
		if result, err = r.attendCall(ctx, f, id, answers); err != nil && result.Kind == "" {
			return err
		}
	}
	if err == nil && result.Kind != abi.Success {
		err = serverFailure(result)
	}
	return a.printCall(ctx, result, err, f.save)
}

// backgroundOf returns the id of the run as which a call continues; empty if it has ended.
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

// limitCodes are the codes of the limits that a call may reach.
var limitCodes = map[abi.Limit]wire.Code{
	abi.LimitFuel: wire.CodeFuel, abi.LimitMemory: wire.CodeMemory, abi.LimitTime: wire.CodeTime, abi.LimitOutput: wire.CodeOutput,
}

// serverFailure returns the error of a call that has no result.
func serverFailure(r abi.Result) error {
	if code, ok := limitCodes[r.Limit]; ok {
		return &wire.Problem{Code: code, Detail: r.Error}
	}
	return &toolFailed{r}
}

// attendCall waits for the run as which a call continues, and answers its questions.
func (r *remote) attendCall(ctx context.Context, f *callFlags, id string, answers flagAnswers) (abi.Result, error) {
	progress := newBar(r.err)
	defer progress.clear()
	ask := r.asker(f.req.Tool, true, answers, progress)
	retry := client.Retry{Away: progress.away}
	told := map[string]bool{}

	for {
		found, err := r.client.Check(ctx, []string{id}, client.CheckOptions{Wait: waitShown})
		switch {
		case err != nil:
			err = retry.Wait(ctx, err)
		case len(found.Runs) == 0:
			return abi.Result{}, missing(found)
		case found.Runs[0].Done:
			run := found.Runs[0]
			return abi.Result{Kind: abi.Success, Value: run.Result, Content: run.Content}, outcome(found)
		default:
			retry.Reached()
			progress.setRuns(found.Runs)
			err = r.answerRun(ctx, found.Runs[0], ask)
			if errors.Is(err, errUnanswered) && progress.asks(found.Runs, told) {
				err = pause(ctx, waitShown) // the server does not wait while there are questions
			}
		}
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, host.ErrDenied) {
				r.notef("toolhost: the run continues: toolhost wait %s --session %s", id, oneLine(f.req.Session))
			}
			return abi.Result{}, err
		}
	}
}

var errUnanswered = errors.New("nobody answers the questions of the run here")

// answerRun answers the questions of a run. The server has added the number of the round to
// the keys that the tool has given them.
func (r *remote) answerRun(ctx context.Context, run wire.Run, ask func(context.Context, abi.Questions) (abi.Answers, error)) error {
	for _, key := range slices.Sorted(maps.Keys(run.Questions)) {
		if ask == nil {
			return errUnanswered
		}
		own := strings.TrimSuffix(strings.TrimRight(key, "0123456789"), ".")
		given, err := ask(ctx, abi.Questions{Questions: map[string]abi.Question{own: run.Questions[key]}})
		if err != nil {
			return err
		}
		if err := r.client.Answer(ctx, run.TaskID, map[string]abi.Answer{key: given.Answers[own]}); err != nil {
			return err
		}
	}
	return nil
}
