package background

import (
	"bytes"
	"cmp"
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

// A SpawnRequest describes a run to start. Only Tool is required.
type SpawnRequest struct {
	Tool           string          // name of the tool; surrounding space is removed
	Version        string          // version of the tool, kept with the run for Config.Readmit; may be empty
	Args           json.RawMessage // any JSON value; nil: {}
	Stored         json.RawMessage // stored in place of Args if they contain secrets: such a run cannot be run again; nil: Args are stored
	Title          string          // at most 120 characters; "": "Background {tool}"
	By             string          // the requester, kept with the run; "": the session's agent
	Silent         bool            // the end makes no notice
	Wake           engine.Wake     // which ends make a notice, unless Silent; "": every end
	Timeout        time.Duration   // hard deadline; 0: Config.Timeout; at most Config.MaxTimeout
	IdempotencyKey string          // at most 128 characters; "": none

	// Held names what the run waits for, such as an approval. The run is stored without taking
	// a slot, and starts once [Manager.Release] is called, even after a restart, if
	// Config.Readmit admits it. With Stored, Parked is required and the run never starts: it
	// only records the decision for its caller, which has the arguments. "": the run starts
	// immediately.
	Held string
	// Parked marks the run as a parked call.
	Parked bool
	// Restartable lets the run start over after a crash, until [DropState] is called.
	Restartable bool

	// Terms are passed to Config.Executor: any JSON value of at most 1 KiB. They are
	// kept in Run.Terms and not reported. Nil passes nothing.
	Terms json.RawMessage

	// Parent is the id of the run's parent, an active run of the session. "" means the
	// run that the context belongs to, see [RunOf], if it is a run of the session.
	// [Manager.Stop] explains what a child is.
	Parent string
}

// A SpawnResult is the run that a spawn created or found.
type SpawnResult struct {
	engine.Run
	Reused bool // Run is an earlier run with the same idempotency key, tool and arguments
}

// Spawn stores a run and starts it. It returns as soon as the record is stored; the
// run does not depend on ctx.
//
// If the session has a run with the same idempotency key, tool and arguments, Spawn
// returns that run instead. If the key was used with another tool or other arguments,
// the error matches [ErrKeyReused].
//
// If there is no slot or permit for the run, or the record quota is full, the error is
// an *[engine.LimitError], and nothing is stored. For a bad request it is a
// *[FieldError], and after Close it is [ErrClosed].
func (m *Manager) Spawn(ctx context.Context, session string, req SpawnRequest) (SpawnResult, error) {
	run, err := m.newStoredRun(session, req)
	if err != nil {
		return SpawnResult{}, fmt.Errorf("spawn: %w", err)
	}
	if err := m.reader.link(ctx, &run, req.Parent); err != nil {
		result, err := m.reuse(ctx, run, err)
		if err != nil {
			err = fmt.Errorf("spawn: %w", err)
		}
		return result, err
	}

	if run.Held != "" {
		result := SpawnResult{Run: run}
		if err := m.admission.enqueue(ctx, run); err != nil {
			if result, err = m.reuse(ctx, run, unlinked(err)); err != nil {
				return SpawnResult{}, fmt.Errorf("spawn: %w", err)
			}
		}
		return result, nil
	}

	t := newTask(m.base, run)
	if run.Secret {
		t.args = bytes.Clone(req.Args)
	}
	result := SpawnResult{Run: run}
	if err := m.admission.admit(ctx, t); err != nil {
		if result, err = m.reuse(ctx, run, unlinked(err)); err != nil {
			return SpawnResult{}, fmt.Errorf("spawn: %w", err)
		}
	}
	return result, nil
}

// Release lets a held run start, and returns it. For any other run the error matches
// [engine.ErrConflict].
func (m *Manager) Release(ctx context.Context, id string) (engine.Run, error) {
	run, err := m.engine.Release(context.WithoutCancel(ctx), id)
	if err != nil {
		return run, fmt.Errorf("release: %w", err)
	}
	m.admission.expect(true)
	return run, nil
}

// Refuse cancels a held run before it has started, and returns it. by and reason are
// stored with the run, like those of a [StopRequest]. For any other run the error
// matches [engine.ErrConflict].
func (m *Manager) Refuse(ctx context.Context, id, by, reason string) (engine.Run, error) {
	c := engine.Cancellation{At: time.Now(), By: by, Reason: output.Shorten(reason, maxReason), Force: true, Held: true}
	run, err := m.engine.Cancel(context.WithoutCancel(ctx), id, c, canceled(c.At))
	if err != nil {
		return run, fmt.Errorf("refuse: %w", err)
	}
	m.worker.counters.ended(run)
	return run, nil
}

// PlanRun checks a request as [Manager.Spawn] does, except for slots, permits and
// quotas, and returns the run that Spawn would start. It stores nothing.
func (m *Manager) PlanRun(ctx context.Context, session string, req SpawnRequest) (engine.Run, error) {
	run, err := m.newStoredRun(session, req)
	if err == nil {
		err = m.reader.link(ctx, &run, req.Parent)
	}
	if err != nil {
		return engine.Run{}, fmt.Errorf("spawn: %w", unlinked(err))
	}
	return run, nil
}

// newRun makes the record of a run, or returns what is wrong with the request. The
// record shares the request's arguments, which are not checked.
func (c *core) newRun(session string, req SpawnRequest) (engine.Run, error) {
	run := engine.Run{
		ID: newID(runPrefix), Session: session, Tool: strings.TrimSpace(req.Tool), Version: req.Version,
		Args: req.Args, Secret: req.Stored != nil, Terms: bytes.Clone(req.Terms),
		Title: strings.TrimSpace(req.Title), By: output.Shorten(req.By, maxReason),
		Origin: engine.OriginSpawned, Status: engine.StatusQueued,
		IdempotencyKey: req.IdempotencyKey, SignalOnCompletion: !req.Silent, Wake: req.Wake,
		Timeout: cmp.Or(req.Timeout, c.cfg().Timeout), OutputCap: c.cfg().OutputCap, CreatedAt: time.Now(),
	}
	if run.Secret {
		run.Args = req.Stored
	}
	run.Held, run.Restartable = req.Held, req.Restartable
	if req.Parked {
		run.Origin = engine.OriginParked
	}
	if len(run.Args) == 0 {
		run.Args = json.RawMessage("{}")
	}
	if run.Title == "" {
		run.Title = output.Clip("Background "+run.Tool, maxTitle)
	}

	switch {
	case session == "":
		return engine.Run{}, &FieldError{"session", "required"}
	case req.Held != "" && run.Secret && !req.Parked:
		return engine.Run{}, &FieldError{"args", "they contain a secret, which is not stored, so the run cannot be held"}
	case run.Tool == "":
		return engine.Run{}, &FieldError{"tool", "required"}
	case utf8.RuneCountInString(run.Title) > maxTitle:
		return engine.Run{}, &FieldError{"title", fmt.Sprintf("longer than %d characters", maxTitle)}
	case utf8.RuneCountInString(run.IdempotencyKey) > maxKey:
		return engine.Run{}, &FieldError{"idempotency_key", fmt.Sprintf("longer than %d characters", maxKey)}
	case run.Wake != engine.WakeEnd && (run.Wake != engine.WakeFailure || req.Silent):
		return engine.Run{}, &FieldError{"wake", "expected end or failure, and not with signal_on_completion false"}
	case len(run.Terms) > maxTerms, run.Terms != nil && !json.Valid(run.Terms):
		return engine.Run{}, &FieldError{"terms", fmt.Sprintf("not valid JSON of at most %d bytes", maxTerms)}
	case run.Timeout < 0 || run.Timeout > c.cfg().MaxTimeout:
		return engine.Run{}, &FieldError{"timeout_seconds", fmt.Sprintf("must be between 1 and %.0f", c.cfg().MaxTimeout.Seconds())}
	}

	return run, nil
}

// newStoredRun is like newRun, but checks the arguments and copies them into the
// record.
func (c *core) newStoredRun(session string, req SpawnRequest) (engine.Run, error) {
	run, err := c.newRun(session, req)
	if err == nil && run.Secret && !json.Valid(req.Args) {
		err = errArgs
	}
	if err == nil {
		run.Args, err = ownArgs(run.Args)
	}
	run.Provider = c.provider(run.Tool)
	return run, err
}

// provider returns the current provider of a tool.
func (c *core) provider(tool string) engine.Provider {
	if c.cfg().Provider == nil {
		return engine.Provider{}
	}
	return c.cfg().Provider(tool)
}

var errArgs = &FieldError{"args", "not valid JSON"}

// ownArgs returns a copy of arguments, which must be JSON.
func ownArgs(args json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(args) {
		return nil, errArgs
	}
	return bytes.Clone(args), nil
}

// reuse returns the earlier run that has the idempotency key of a refused run.
func (m *Manager) reuse(ctx context.Context, run engine.Run, refused error) (SpawnResult, error) {
	first, found, err := m.reader.sameKey(ctx, run)
	switch {
	case errors.Is(err, ErrKeyReused):
		return SpawnResult{}, err
	case err != nil:
		return SpawnResult{}, errors.Join(refused, err)
	case !found:
		return SpawnResult{}, refused
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
