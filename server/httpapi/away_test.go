package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// awayEngine is an engine whose storage can be away.
type awayEngine struct {
	engine.Engine
	away atomic.Bool
}

func (e *awayEngine) err() error {
	if e.away.Load() {
		return fmt.Errorf("%w: dial tcp 10.0.0.7:5432: connection refused", engine.ErrUnavailable)
	}
	return nil
}

// while returns what f returns unless e is away.
func while[T any](e *awayEngine, f func() (T, error)) (none T, err error) {
	if err := e.err(); err != nil {
		return none, err
	}
	return f()
}

func only(e *awayEngine, f func() error) error {
	_, err := while(e, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (e *awayEngine) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return &awayWorker{w, e}, err
}

func (e *awayEngine) Workers(ctx context.Context) ([]engine.WorkerState, error) {
	return while(e, func() ([]engine.WorkerState, error) { return e.Engine.Workers(ctx) })
}

func (e *awayEngine) Get(ctx context.Context, id string) (engine.Run, error) {
	return while(e, func() (engine.Run, error) { return e.Engine.Get(ctx, id) })
}

func (e *awayEngine) Payload(ctx context.Context, id string, part engine.Part) (json.RawMessage, error) {
	return while(e, func() (json.RawMessage, error) { return e.Engine.Payload(ctx, id, part) })
}

func (e *awayEngine) List(ctx context.Context, q engine.Query) ([]engine.Run, error) {
	return while(e, func() ([]engine.Run, error) { return e.Engine.List(ctx, q) })
}

func (e *awayEngine) Cancel(ctx context.Context, id string, c engine.Cancellation, end engine.End) (engine.Run, error) {
	return while(e, func() (engine.Run, error) { return e.Engine.Cancel(ctx, id, c, end) })
}

func (e *awayEngine) Tail(ctx context.Context, id string, offset int64, max int) (engine.Chunk, error) {
	return while(e, func() (engine.Chunk, error) { return e.Engine.Tail(ctx, id, offset, max) })
}

func (e *awayEngine) Open(ctx context.Context, id, name string) (engine.Artifact, error) {
	return while(e, func() (engine.Artifact, error) { return e.Engine.Open(ctx, id, name) })
}

func (e *awayEngine) Pending(ctx context.Context, session string, since time.Time, max int) (runs []engine.Run, total int, err error) {
	if err := e.err(); err != nil {
		return nil, 0, err
	}
	return e.Engine.Pending(ctx, session, since, max)
}

func (e *awayEngine) Acknowledge(ctx context.Context, session string, ids []string) error {
	return only(e, func() error { return e.Engine.Acknowledge(ctx, session, ids) })
}

func (e *awayEngine) Remove(ctx context.Context, id string) error {
	return only(e, func() error { return e.Engine.Remove(ctx, id) })
}

func (e *awayEngine) PutSchedule(ctx context.Context, s engine.Schedule, max int) (engine.Schedule, error) {
	return while(e, func() (engine.Schedule, error) { return e.Engine.PutSchedule(ctx, s, max) })
}

func (e *awayEngine) GetSchedule(ctx context.Context, id string) (engine.Schedule, error) {
	return while(e, func() (engine.Schedule, error) { return e.Engine.GetSchedule(ctx, id) })
}

func (e *awayEngine) Schedules(ctx context.Context, session string, enabled bool) ([]engine.Schedule, error) {
	return while(e, func() ([]engine.Schedule, error) { return e.Engine.Schedules(ctx, session, enabled) })
}

func (e *awayEngine) Value(ctx context.Context, s engine.Scope, key string) (engine.Value, error) {
	return while(e, func() (engine.Value, error) { return e.Engine.Value(ctx, s, key) })
}

func (e *awayEngine) Values(ctx context.Context, s engine.Scope, after string, max int, data bool) ([]engine.Value, error) {
	return while(e, func() ([]engine.Value, error) { return e.Engine.Values(ctx, s, after, max, data) })
}

func (e *awayEngine) PutValue(ctx context.Context, s engine.Scope, v engine.Value, limit engine.ValueLimit) (engine.Value, error) {
	return while(e, func() (engine.Value, error) { return e.Engine.PutValue(ctx, s, v, limit) })
}

func (e *awayEngine) DeleteValue(ctx context.Context, s engine.Scope, key string, version int64) error {
	return only(e, func() error { return e.Engine.DeleteValue(ctx, s, key, version) })
}

func (e *awayEngine) DropValues(ctx context.Context, s engine.Scope, through string) error {
	return only(e, func() error { return e.Engine.DropValues(ctx, s, through) })
}

func (e *awayEngine) Scopes(ctx context.Context, session, prefix string) ([]engine.ScopeInfo, error) {
	return while(e, func() ([]engine.ScopeInfo, error) { return e.Engine.Scopes(ctx, session, prefix) })
}

func (e *awayEngine) Now(ctx context.Context) (time.Time, error) {
	return while(e, func() (time.Time, error) { return e.Engine.Now(ctx) })
}

type awayWorker struct {
	engine.Worker
	engine *awayEngine
}

func (w *awayWorker) Submit(ctx context.Context, run engine.Run, permits *engine.Permits) error {
	return only(w.engine, func() error { return w.Worker.Submit(ctx, run, permits) })
}
