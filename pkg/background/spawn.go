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

// A Spawned is the run a spawn made, or found.
type Spawned struct {
	Run
	Reused bool // an earlier run with the same idempotency key, tool and arguments
}

// Spawn stores a run and starts it. It returns as soon as the record is
// stored; the run does not depend on ctx.
//
// If the session has a run with the same idempotency key, tool and arguments,
// Spawn returns that one instead. With the same key and another tool or other
// arguments, the error matches [ErrKeyReused].
//
// If there is no place for it, or no room to keep its record, the error is a
// *[LimitError], and nothing is stored. A
// bad request is a *[FieldError]; after Close the error is [ErrClosed].
func (m *Manager) Spawn(ctx context.Context, session string, req SpawnRequest) (Spawned, error) {
	run, err := m.newRun(session, req)
	if err != nil {
		return Spawned{}, fmt.Errorf("spawn: %w", err)
	}
	if req.IdempotencyKey != "" {
		unlock, err := m.lockKey(ctx, session, req.IdempotencyKey)
		if err != nil {
			return Spawned{}, fmt.Errorf("spawn: %w", err)
		}
		defer unlock()
		earlier, ok, err := m.reuse(ctx, run)
		if err != nil {
			return Spawned{}, fmt.Errorf("spawn: %w", err)
		}
		if ok {
			return earlier, nil
		}
	}
	if err := m.admit(ctx, run, secretArgs(req.Args, req.Stored)); err != nil {
		return Spawned{}, fmt.Errorf("spawn: %w", err)
	}
	return Spawned{Run: run}, nil
}

// newRun makes the record of a run, or says what is wrong with the request.
func (m *Manager) newRun(session string, req SpawnRequest) (Run, error) {
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
		timeout = m.cfg.Timeout
	}
	if title == "" {
		title = clip("Background "+tool, maxTitle)
	}
	switch {
	case session == "":
		return Run{}, &FieldError{"session", "required"}
	case tool == "":
		return Run{}, &FieldError{"tool", "required"}
	case !json.Valid(args), req.Stored != nil && !json.Valid(req.Args):
		return Run{}, &FieldError{"args", "not valid JSON"}
	case utf8.RuneCountInString(title) > maxTitle:
		return Run{}, &FieldError{"title", fmt.Sprintf("longer than %d characters", maxTitle)}
	case utf8.RuneCountInString(req.IdempotencyKey) > maxKey:
		return Run{}, &FieldError{"idempotency_key", fmt.Sprintf("longer than %d characters", maxKey)}
	case timeout < 0 || timeout > m.cfg.MaxTimeout:
		return Run{}, &FieldError{"timeout_seconds", fmt.Sprintf("must be between 1 and %.0f", m.cfg.MaxTimeout.Seconds())}
	}
	id, err := newID()
	return Run{
		ID: id, Session: session, Tool: tool, Version: req.Version, Args: args, Secret: req.Stored != nil,
		Title: title, By: shorten(req.By, maxReason),
		Origin: OriginSpawned, Status: StatusQueued,
		IdempotencyKey: req.IdempotencyKey, SignalOnCompletion: !req.Silent,
		Timeout: timeout, OutputCap: m.cfg.OutputCap, CreatedAt: time.Now(),
	}, err
}

// lockKey waits until no other spawn uses the key, so that of two at once the
// second finds the run of the first.
func (m *Manager) lockKey(ctx context.Context, session, key string) (unlock func(), err error) {
	key = fmt.Sprintf("%d:%s%s", len(session), session, key)
	for {
		m.mu.Lock()
		busy := m.keys[key]
		if busy == nil {
			m.keys[key] = make(chan struct{})
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				close(m.keys[key])
				delete(m.keys, key)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// reuse looks for an earlier run with the key of run.
func (m *Manager) reuse(ctx context.Context, run Run) (earlier Spawned, ok bool, err error) {
	runs, err := m.list(ctx, Query{Session: run.Session, IdempotencyKey: run.IdempotencyKey, Limit: 1})
	if err != nil || len(runs) == 0 {
		return Spawned{}, false, err
	}
	first, _, err := m.lookup(ctx, run.Session, runs[0].ID)
	if err != nil {
		return Spawned{}, false, err
	}
	if first.Tool != run.Tool || !sameJSON(first.Args, run.Args) {
		return Spawned{}, false, fmt.Errorf("%w: %s", ErrKeyReused, first.ID)
	}
	return Spawned{Run: first, Reused: true}, true, nil
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

// admit takes the permits of a run, stores its record and starts its
// goroutine. If it fails, nothing of that is left.
func (m *Manager) admit(ctx context.Context, run Run, args json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := newTask(run)
	t.args = args
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		return ErrClosed
	}
	if err := m.limits.acquire(t.lane, run.ID); err != nil {
		m.stats.Refused++
		m.mu.Unlock()
		return err
	}
	m.tasks[run.ID] = t
	m.running.Add(1)
	m.mu.Unlock()

	if err := m.submit(ctx, run); err != nil {
		m.countRefused(err)
		started := m.limits.release(t.lane, run.ID)
		m.leave(t)
		m.running.Done()
		m.start(started)
		return err
	}
	t.launch(m.base)
	go m.execute(t)
	return nil
}

// countRefused counts a record there was no room for, if that is what err says.
func (m *Manager) countRefused(err error) {
	if errors.Is(err, ErrRecordLimit) {
		m.count(func(s *Stats) { s.Refused++ })
	}
}

// submit stores the record of a new run. Once that has begun it is brought to
// its end, whatever becomes of ctx: a record nobody works on must not stay.
func (m *Manager) submit(ctx context.Context, run Run) error {
	ctx = context.WithoutCancel(ctx)
	if err := m.engine.Submit(ctx, run); errors.Is(err, ErrExists) || errors.Is(err, ErrRecordLimit) || errors.Is(err, ErrStorageLost) {
		return err
	} else if err != nil {
		if _, missing := m.engine.Get(ctx, run.ID); missing != nil {
			return fmt.Errorf("storing the run: %w", err)
		}
		m.log.Warn("background run stored all the same", "task_id", run.ID, "error", err)
	}
	m.count(func(s *Stats) { s.Spawned++ })
	m.log.Info("background run spawned", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "origin", run.Origin, "args", loggedArgs(run.Args))
	return nil
}
