package background

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A SpawnRequest says what to run. Only Tool is required.
type SpawnRequest struct {
	Tool           string          // trimmed
	Version        string          // of the tool, kept with the run for Config.Readmit; may be empty
	Args           json.RawMessage // any JSON value; nil: {}
	Stored         json.RawMessage // stored in place of Args, which hold secrets: the run cannot be run again; nil: Args
	Title          string          // at most 120 characters; "": "Background {tool}"
	By             string          // who asks, kept with the run; "": the session's agent
	Silent         bool            // no notice of the end is made
	Timeout        time.Duration   // hard deadline; 0: Config.Timeout; at most Config.MaxTimeout
	IdempotencyKey string          // at most 128 characters; "": none
}

// A SpawnResult is the run that a spawn made, or found.
type SpawnResult struct {
	engine.Run
	Reused bool // an earlier run with the same idempotency key, tool and arguments
}

// Spawn stores a run and starts it. It returns as soon as the record is
// stored; the run does not depend on ctx.
//
// If the session has a run with the same idempotency key, tool and arguments,
// Spawn returns that one instead. With the same key and another tool or other
// arguments, the error matches [ErrKeyReused].
//
// If there is no slot or permit for the run, or no room for its record, the error
// is an *[engine.LimitError], and nothing is stored. A bad request is a
// *[FieldError]; after Close the error is [ErrClosed].
func (m *Manager) Spawn(ctx context.Context, session string, req SpawnRequest) (SpawnResult, error) {
	run, err := m.newRun(session, req)
	if err != nil {
		return SpawnResult{}, fmt.Errorf("spawn: %w", err)
	}

	t := newTask(run)
	t.args = secretArgs(req.Args, req.Stored)
	if err := m.admission.admit(ctx, t); err != nil {
		earlier, err := m.reuse(ctx, run, err)
		if err != nil {
			return SpawnResult{}, fmt.Errorf("spawn: %w", err)
		}
		return earlier, nil
	}
	return SpawnResult{Run: run}, nil
}

// newRun makes the record of a run, or says what is wrong with the request.
func (c *core) newRun(session string, req SpawnRequest) (engine.Run, error) {
	tool, title := strings.TrimSpace(req.Tool), strings.TrimSpace(req.Title)
	args := bytes.Clone(req.Args)
	if req.Stored != nil {
		args = bytes.Clone(req.Stored)
	}
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	timeout := req.Timeout
	if timeout == 0 {
		timeout = c.cfg.Timeout
	}
	if title == "" {
		title = output.Clip("Background "+tool, maxTitle)
	}
	switch {
	case session == "":
		return engine.Run{}, &FieldError{"session", "required"}
	case tool == "":
		return engine.Run{}, &FieldError{"tool", "required"}
	case !json.Valid(args), req.Stored != nil && !json.Valid(req.Args):
		return engine.Run{}, &FieldError{"args", "not valid JSON"}
	case utf8.RuneCountInString(title) > maxTitle:
		return engine.Run{}, &FieldError{"title", fmt.Sprintf("longer than %d characters", maxTitle)}
	case utf8.RuneCountInString(req.IdempotencyKey) > maxKey:
		return engine.Run{}, &FieldError{"idempotency_key", fmt.Sprintf("longer than %d characters", maxKey)}
	case timeout < 0 || timeout > c.cfg.MaxTimeout:
		return engine.Run{}, &FieldError{"timeout_seconds", fmt.Sprintf("must be between 1 and %.0f", c.cfg.MaxTimeout.Seconds())}
	}
	id, err := newID()
	return engine.Run{
		ID: id, Session: session, Tool: tool, Version: req.Version, Args: args, Secret: req.Stored != nil,
		Title: title, By: output.Shorten(req.By, maxReason),
		Origin: engine.OriginSpawned, Status: engine.StatusQueued,
		IdempotencyKey: req.IdempotencyKey, SignalOnCompletion: !req.Silent,
		Timeout: timeout, OutputCap: c.cfg.OutputCap, CreatedAt: time.Now(),
	}, err
}

// reuse returns the earlier run that has the key of run, if err says that there is
// one. The engine finds it in the step that would store run; if there is no slot
// for run, it is looked for.
func (m *Manager) reuse(ctx context.Context, run engine.Run, err error) (earlier SpawnResult, refused error) {
	taken, known := errors.AsType[*engine.ExistsError](err)
	id := ""
	switch {
	case known:
		id = taken.ID
	case run.IdempotencyKey != "" && (errors.Is(err, ErrHostLimit) || errors.Is(err, ErrClosed)):
		runs, listErr := m.reader.list(ctx, engine.Query{Session: run.Session, IdempotencyKey: run.IdempotencyKey, Limit: 1})
		if listErr != nil || len(runs) == 0 {
			return SpawnResult{}, err
		}
		id = runs[0].ID
	default:
		return SpawnResult{}, err
	}

	first, _, err := m.reader.lookup(ctx, run.Session, id)
	if err != nil {
		return SpawnResult{}, err
	}
	if first.Args, err = m.engine.Payload(ctx, id, engine.PartArgs); err != nil {
		return SpawnResult{}, err
	}
	if first.Tool != run.Tool || !sameJSON(first.Args, run.Args) {
		return SpawnResult{}, fmt.Errorf("%w: %s", ErrKeyReused, id)
	}
	return SpawnResult{Run: first, Reused: true}, nil
}

// sameJSON reports whether two texts are the same JSON value.
func sameJSON(a, b json.RawMessage) bool {
	decode := func(text json.RawMessage) (v any) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&v) != nil {
			return nil
		}
		return v
	}
	return bytes.Equal(a, b) || reflect.DeepEqual(decode(a), decode(b))
}

// secretArgs returns what the work is given if that is not what is stored.
func secretArgs(args, stored json.RawMessage) json.RawMessage {
	if stored == nil {
		return nil
	}
	return bytes.Clone(args)
}
