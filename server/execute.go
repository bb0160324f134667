package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
)

// execute does the work of a background run: it calls the run's tool, and lets
// the run's sink follow. It depends on nothing but the record, so that a run
// can be executed again.
func (s *Service) execute(ctx context.Context, run background.Run, sink *background.Sink) (background.Outcome, error) {
	terms, err := termsIn(run)
	if err != nil {
		return background.Outcome{}, err
	}
	for {
		tool, err := s.executable(run)
		if err != nil {
			return background.Outcome{}, &background.Error{Kind: background.KindRejected, Message: public(err), Err: err}
		}
		limits := s.limits(terms.limits(), tool.Tool)
		limits.Timeout = run.Timeout
		r, err := s.run(ctx, tool, s.withSink(host.Call{
			ID: run.ID, Session: run.Session, Attempt: run.Attempt, Args: run.Args, Locale: terms.Locale, Policy: limits.policy(), Background: true,
		}, sink))
		if errors.Is(err, plugins.ErrReplaced) { // nothing has run
			continue
		}
		return outcome(ctx, r, err)
	}
}

// terms are what a caller has said of a call beside its arguments and its
// deadline, as the record has it once the call is parked: a later attempt is
// bound by it too.
type terms struct {
	Fuel   int64  `json:"fuel,omitempty"`
	Memory int64  `json:"memory,omitempty"`
	Output int64  `json:"output,omitempty"`
	Locale string `json:"locale,omitempty"`
}

// termsOf encodes the terms of a call; nil if it has none of its own.
func termsOf(req Request) json.RawMessage {
	own := terms{req.Limits.Fuel, req.Limits.Memory, req.Limits.Output, req.Locale}
	if own == (terms{}) {
		return nil
	}
	data, _ := json.Marshal(own) // numbers and a text
	return data
}

// termsIn reads the terms a run has in its record. Without them it is not run.
func termsIn(run background.Run) (own terms, err error) {
	if run.Terms == nil {
		return own, nil
	}
	if err := json.Unmarshal(run.Terms, &own); err != nil {
		return own, fmt.Errorf("reading the terms of %s: %w", run.ID, err)
	}
	return own, nil
}

func (t terms) limits() Limits { return Limits{Fuel: t.Fuel, Memory: t.Memory, Output: t.Output} }

// executable looks the tool of a run up anew: since the run was admitted its
// plugin may have been replaced. A schedule is for whatever plugin has the tool;
// any other run is for the one its arguments were checked against, and whose
// version its record says, and so is one that goes on where it was when its host
// went down: what it saved is of that version.
func (s *Service) executable(run background.Run) (*plugins.Tool, error) {
	tool, err := s.registry.Lookup(run.Tool)
	if err == nil {
		err = s.admitRun(tool, run)
	}
	if err == nil && (run.Schedule == "" || run.Attempt > 1) {
		err = sameVersion(tool, run)
	}
	return tool, err
}

// admitRun is admit for a run, whose record may be old.
func (s *Service) admitRun(tool *plugins.Tool, run background.Run) error {
	args, err := parseArgs(run.Tool, Args{}, run.Args)
	if err != nil {
		return err
	}
	return s.admit(tool, args)
}

// withSink lets the sink of a run follow a call, keep its checkpoints, and ask
// it to stop.
func (s *Service) withSink(call host.Call, sink *background.Sink) host.Call {
	call.Stdout, call.Stderr, call.Stopping = sink.Stdout(), sink.Stderr(), sink.Stopping()
	call.Progress = func(p host.Progress) { sink.Progress(p.Done, max(p.Total, 0), p.Message) }
	call.Checkpoint = &host.Checkpoint{Load: sink.Restore, Save: func(data []byte) error {
		err := sink.Checkpoint(data)
		switch {
		case errors.Is(err, background.ErrNoRun):
			return fmt.Errorf("%w: %w", host.ErrDenied, err)
		case err != nil:
			s.log.Warn("checkpoint not stored", "call", call.ID, "session", call.Session, "error", err)
		}
		return err
	}}
	return call
}

// outcome turns how a call ended into how its run ends.
func outcome(ctx context.Context, r abi.Result, err error) (background.Outcome, error) {
	out := background.Outcome{ExitCode: r.ExitCode}
	if len(r.Content) > 0 && (r.Kind == abi.Success || r.Kind == abi.ToolError) { // what a broken plugin left is not the agent's business
		content, err := encode(r.Content)
		if err != nil {
			return out, err
		}
		out.Content = content
	}
	if r.Kind == abi.Success {
		out.Result = r.Value
		return out, nil
	}
	if r.Limit == abi.LimitTime {
		<-ctx.Done() // the run's own deadline, at this very moment
	}
	if err != nil && ctx.Err() != nil {
		return out, err // the manager knows why it ended the run
	}
	return out, &background.Error{Kind: errorKind(r, err), Message: r.Error, Err: err}
}

// Content returns the content blocks that the record of a run keeps beside its
// result or its error.
func Content(run background.Run) []abi.Block {
	var blocks []abi.Block
	if json.Unmarshal(run.Content, &blocks) != nil { // there is none, or it is none of a tool
		return nil
	}
	return blocks
}

// errorKind maps how a call ended to why a run failed.
func errorKind(r abi.Result, err error) background.ErrorKind {
	switch {
	case r.Kind == abi.ToolError && (err == nil || errors.Is(err, host.ErrABI)): // the latter is a plugin that cannot be compiled
		return background.KindToolError
	case r.Kind == abi.ConnectionRequired:
		return background.KindConnectionRequired
	case errors.Is(err, host.ErrDenied):
		return background.KindRejected
	case errors.Is(err, host.ErrFiles):
		return background.KindLimit
	case errors.Is(err, host.ErrTrap):
		return background.KindTrap
	}
	switch r.Limit {
	case abi.LimitFuel:
		return background.KindFuelExhausted
	case abi.LimitMemory:
		return background.KindMemoryLimit
	case abi.LimitOutput:
		return background.KindOutputLimit
	}
	return background.KindInternal
}
