package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

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
		Tool    string          `json:"tool"`
		Args    json.RawMessage `json:"args"`
		Title   string          `json:"title"`
		Signal  *bool           `json:"signal_on_completion"`
		Timeout float64         `json:"timeout_seconds"`
		Key     string          `json:"idempotency_key"`
	}](req.Args)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSpace(in.Tool)
	switch {
	case name == "":
		return nil, &background.FieldError{Field: "tool", Problem: "required"}
	case slices.Contains(agentNames, name):
		return nil, refuse("%s cannot be spawned: call it directly", name)
	}
	tool, err := s.registry.Lookup(name)
	if err != nil {
		return nil, err
	}
	if !tool.Tool.Hints.SupportsBackground {
		return nil, refuse("%s does not support background runs: call it directly", name)
	}
	timeout, err := s.deadline(in.Timeout, tool.Tool)
	if err != nil {
		return nil, err
	}
	if err := s.admit(ctx, tool, Request{Session: req.Session, Args: in.Args}, !req.DryRun); err != nil {
		return nil, err
	}
	spawnReq := background.SpawnRequest{
		Tool: name, Args: in.Args, Title: first(strings.TrimSpace(in.Title), tool.Tool.Title),
		Silent: in.Signal != nil && !*in.Signal, Timeout: timeout, IdempotencyKey: in.Key,
	}
	if req.DryRun {
		return spawned{Title: first(spawnReq.Title, "Background "+name), Tool: name, DeadlineSeconds: int64(timeout.Seconds()),
			SignalOnCompletion: !spawnReq.Silent, DryRun: true}, nil
	}
	run, err := s.runs.Spawn(ctx, req.Session, spawnReq)
	if err != nil {
		return nil, err
	}
	return spawned{TaskID: run.ID, Status: run.Status, Title: run.Title, Tool: run.Tool, DeadlineSeconds: int64(run.Timeout.Seconds()),
		SignalOnCompletion: run.SignalOnCompletion, Reused: run.Reused}, nil
}

// The waits and the sizes of check_background.
const (
	defaultWait = 60 * time.Second // if ids are named
	maxAnswer   = 50_000           // characters of one answer
	maxInline   = 8 << 10          // bytes of a result that is shown whole among others
	preview     = 1 << 10          // bytes of one that is not
	envelope    = 400              // characters of a report beside its output and its result
)

// share is what the output and the result of each of n runs may take of an
// answer.
func share(n int) int { return (maxAnswer/n - envelope) / 2 }

// excerpt stands for a result that is too large to show.
type excerpt struct {
	ResultBytes   int    `json:"result_bytes,omitempty"`
	ResultPreview string `json:"result_preview,omitempty"` // its beginning
}

// cut takes a result of more than so many bytes away and returns what stands
// for it.
func cut(result *json.RawMessage, most int) (e excerpt) {
	if len(*result) > most {
		e = excerpt{len(*result), strings.ToValidUTF8(string((*result)[:preview]), "")}
		*result = nil
	}
	return e
}

// report is what check_background answers of one run.
type report struct {
	background.Report
	excerpt
	Next string `json:"next,omitempty"` // what to do for more
}

// check reports on runs, or lists them.
func check(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		ID       string   `json:"task_id"`
		IDs      []string `json:"task_ids"`
		List     bool     `json:"list"`
		Wait     *float64 `json:"wait_seconds"`
		Until    string   `json:"until"`
		Cursor   string   `json:"cursor"`
		MaxChars *float64 `json:"max_chars"`
		Finished *bool    `json:"include_finished"`
	}](req.Args)
	if err != nil {
		return nil, err
	}
	ids := in.IDs
	if in.ID != "" {
		ids = append(ids, in.ID)
	}
	switch {
	case in.List || len(ids) == 0:
		return s.runs.List(ctx, req.Session, background.ListRequest{ActiveOnly: in.Finished != nil && !*in.Finished})
	case in.ID != "" && len(in.IDs) > 0:
		return nil, &background.FieldError{Field: "task_ids", Problem: "give either task_id or task_ids"}
	}
	checkReq := background.CheckRequest{
		IDs: ids, Wait: defaultWait, Until: background.Until(in.Until), Cursor: in.Cursor, MaxChars: background.DefaultChars,
	}
	if in.Wait != nil {
		checkReq.Wait = duration(*in.Wait)
	}
	if in.MaxChars != nil {
		checkReq.MaxChars = int(min(*in.MaxChars, background.MaxChars))
	}
	if checkReq.MaxChars = min(checkReq.MaxChars, share(len(ids))); checkReq.MaxChars <= 0 {
		checkReq.MaxChars = -1 // none at all
	}
	checked, err := s.runs.Check(ctx, req.Session, checkReq)
	if err != nil {
		return nil, err
	}
	return answers(checked, len(ids), checkReq.Wait > background.MaxWait), nil
}

// answers fits the reports on n runs into one answer. Shortened says that the
// wait asked for was longer than a wait can be.
func answers(checked background.Checked, n int, shortened bool) any {
	most := share(n)
	if n > 1 {
		most = min(most, maxInline)
	}
	reports := make([]report, len(checked.Reports))
	for i, r := range checked.Reports {
		large := cut(&r.Result, most)
		out := report{Report: r, excerpt: large}
		if r.Error != nil && len(r.Error.Message) > most {
			out.Error = &background.RunError{Kind: r.Error.Kind, Message: strings.ToValidUTF8(r.Error.Message[:most], "") + "…"}
		}
		switch {
		case out.ResultBytes > 0 && out.ResultBytes <= share(1):
			out.Next = "check this task alone for the whole result"
		case shortened && !r.Done:
			out.Next = fmt.Sprintf("%.0f seconds is the longest wait: check again to go on waiting", background.MaxWait.Seconds())
		}
		reports[i] = out
	}
	if n == 1 {
		return reports[0]
	}
	answer := struct {
		Tasks   []report `json:"tasks"`
		Missing string   `json:"error,omitempty"`
	}{Tasks: reports}
	if checked.Missing != nil {
		answer.Missing = notFound(checked.Missing)
	}
	return answer
}

// stopped is the answer of stop_background.
type stopped struct {
	background.Stopped
	excerpt
	DryRun bool `json:"dry_run,omitempty"`
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
		done := run.Status.Terminal()
		return stopped{Stopped: background.Stopped{TaskID: run.ID, Status: run.Status, AlreadyFinished: done}, DryRun: true}, err
	}
	answer, err := s.runs.Stop(ctx, req.Session, in.ID, background.StopRequest{Force: in.Force, Reason: in.Reason})
	large := cut(&answer.Result, share(1))
	return stopped{Stopped: answer, excerpt: large}, err
}
