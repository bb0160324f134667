package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
)

// refusal is a text for the agent that is no fault of anybody's code.
type refusal string

func (r refusal) Error() string { return string(r) }

// decode reads arguments that were checked against their schema.
func decode[T any](args json.RawMessage) (in T, err error) {
	err = json.Unmarshal(args, &in)
	return in, err
}

// spawned is the answer of spawn_background.
type spawned struct {
	TaskID             string            `json:"task_id,omitempty"`
	Status             background.Status `json:"status,omitempty"`
	Title              string            `json:"title"`
	Tool               string            `json:"tool"`
	DeadlineSeconds    int64             `json:"deadline_seconds"`
	SignalOnCompletion bool              `json:"signal_on_completion"`
	Reused             bool              `json:"reused,omitempty"`
	DryRun             bool              `json:"dry_run,omitempty"`
}

// spawn starts a background run. The order of its checks decides which error
// an agent sees first: what it named, before what it asked for.
func spawn(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		Tool   string          `json:"tool"`
		Args   json.RawMessage `json:"args"`
		Title  string          `json:"title"`
		Signal *bool           `json:"signal_on_completion"`
		Limit  int64           `json:"timeout_seconds"`
		Key    string          `json:"idempotency_key"`
	}](req.Args)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSpace(in.Tool)
	switch {
	case name == "":
		return nil, refusal("Missing required parameter: tool")
	case slices.Contains([]string{SpawnBackground, CheckBackground, StopBackground}, name):
		return nil, refusal(name + " cannot be spawned: it is one of the tools for background runs")
	}
	tool, err := s.registry.Lookup(name)
	if err != nil {
		return nil, err
	}
	if !tool.Tool.Hints.SupportsBackground {
		return nil, refusal("Tool does not support background execution: " + name + ". Call it directly")
	}
	target := Request{Session: req.Session, Tool: name, Args: in.Args}
	if r, err := s.admit(ctx, tool, target); err != nil {
		return nil, err
	} else if r != nil {
		return nil, refusal(r.Error)
	}
	if len(tool.Plugin.Missing) > 0 {
		return nil, refusal("the plugin " + tool.Plugin.Manifest.Name + " was not granted all it needs")
	}
	limits := s.limits(Limits{Background: seconds(in.Limit)}, tool.Tool)
	spawnReq := background.SpawnRequest{
		Tool: name, Args: in.Args, Title: first(strings.TrimSpace(in.Title), tool.Tool.Title),
		Silent: in.Signal != nil && !*in.Signal, Timeout: limits.Background, IdempotencyKey: in.Key,
	}
	if req.DryRun {
		return spawned{Title: first(spawnReq.Title, "Background "+name), Tool: name, DeadlineSeconds: int64(limits.Background.Seconds()),
			SignalOnCompletion: !spawnReq.Silent, DryRun: true}, nil
	}
	run, err := s.runs.Spawn(ctx, req.Session, spawnReq)
	if err != nil {
		return nil, err
	}
	return spawned{TaskID: run.ID, Status: run.Status, Title: run.Title, Tool: run.Tool, DeadlineSeconds: int64(run.Timeout.Seconds()),
		SignalOnCompletion: run.SignalOnCompletion, Reused: run.Reused}, nil
}

// The waits of check_background.
const (
	defaultWait = 60 * time.Second // if ids are named
	maxAnswer   = 50_000           // bytes of one answer
	maxInline   = 8 << 10          // bytes of a result that is shown whole among others
	preview     = 1 << 10          // bytes of one that is not
)

// report is what check_background answers of one run.
type report struct {
	background.Report
	ResultBytes   int    `json:"result_bytes,omitempty"`   // of a result that is too large to show
	ResultPreview string `json:"result_preview,omitempty"` // its beginning
}

// check reports on runs, or lists them.
func check(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		ID       string   `json:"task_id"`
		IDs      []string `json:"task_ids"`
		List     bool     `json:"list"`
		Wait     *int64   `json:"wait_seconds"`
		Until    string   `json:"until"`
		Cursor   string   `json:"cursor"`
		MaxChars *int     `json:"max_chars"`
		Finished *bool    `json:"include_finished"`
	}](req.Args)
	if err != nil {
		return nil, err
	}
	if in.ID != "" && len(in.IDs) > 0 {
		return nil, refusal("give either task_id or task_ids, not both")
	}
	ids := in.IDs
	if in.ID != "" {
		ids = []string{in.ID}
	}
	if in.List || len(ids) == 0 {
		return s.runs.List(ctx, req.Session, background.ListRequest{ActiveOnly: in.Finished != nil && !*in.Finished})
	}
	checkReq := background.CheckRequest{IDs: ids, Wait: defaultWait, Until: background.Until(in.Until), Cursor: in.Cursor}
	if in.Wait != nil {
		checkReq.Wait = seconds(max(*in.Wait, 0))
	}
	if in.MaxChars != nil {
		if checkReq.MaxChars = *in.MaxChars; checkReq.MaxChars <= 0 {
			checkReq.MaxChars = -1
		}
	}
	checked, err := s.runs.Check(ctx, req.Session, checkReq)
	if err != nil {
		return nil, err
	}
	return answers(checked, len(ids) == 1)
}

// answers fits the reports into one answer.
func answers(checked background.Checked, single bool) (any, error) {
	most := maxInline
	if single {
		most = maxAnswer / 2
	}
	reports := make([]report, len(checked.Reports))
	for i, r := range checked.Reports {
		reports[i] = report{Report: r}
		if len(r.Result) > most {
			reports[i].Result = nil
			reports[i].ResultBytes = len(r.Result)
			reports[i].ResultPreview = strings.ToValidUTF8(string(r.Result[:preview]), "")
		}
	}
	if single {
		return reports[0], nil
	}
	answer := struct {
		Tasks   []report `json:"tasks"`
		Missing string   `json:"error,omitempty"`
	}{Tasks: reports}
	if checked.Missing != nil {
		answer.Missing = checked.Missing.Error()
	}
	return answer, nil
}

// stop ends a run.
func stop(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		ID     string `json:"task_id"`
		Force  bool   `json:"force"`
		Reason string `json:"reason"`
	}](req.Args)
	if err != nil {
		return nil, err
	}
	if req.DryRun {
		run, err := s.runs.Get(ctx, req.Session, in.ID)
		if err != nil {
			return nil, err
		}
		return struct {
			background.Stopped
			DryRun bool `json:"dry_run"`
		}{background.Stopped{TaskID: run.ID, Status: run.Status, AlreadyFinished: run.Status.Terminal()}, true}, nil
	}
	return s.runs.Stop(ctx, req.Session, in.ID, background.StopRequest{Force: in.Force, Reason: in.Reason})
}

// explain turns an error of a run's door into what the agent is told. An error
// of this package's own making is not the agent's business.
func explain(err error) (abi.Result, error) {
	var limit *background.LimitError
	switch {
	case errors.As(err, &limit) && errors.Is(err, background.ErrSessionLimit):
		return toolError("Maximum %d active background runs per session. Wait for an existing run to finish before starting another: %s",
			limit.Max, strings.Join(limit.Active, ", ")), nil
	case errors.As(err, &limit):
		return toolError("This host is already running the maximum %d active background runs. Try again after an existing run finishes.", limit.Max), nil
	case errors.Is(err, background.ErrClosed):
		return toolError("the host is shutting down"), err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return abi.Result{Kind: abi.CanceledKind, Error: err.Error()}, err
	}
	var refused refusal
	for _, own := range []error{background.ErrNotFound, background.ErrInvalid, background.ErrKeyReused, plugins.ErrNoTool, ErrApproval} {
		if errors.Is(err, own) || errors.As(err, &refused) {
			return toolError("%v", err), nil
		}
	}
	return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}, fmt.Errorf("background run: %w", err)
}
