package sqlite

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

// A lease implements [background.Lease].
type lease struct {
	engine     *Engine
	run        background.Run
	checkpoint []byte
}

var _ background.Lease = (*lease)(nil)

// Run implements [background.Lease].
func (l *lease) Run() background.Run { return l.run.Clone() }

// Checkpoint implements [background.Lease].
func (l *lease) Checkpoint() []byte { return bytes.Clone(l.checkpoint) }

// current returns the live run if the lease is its current one. Engine.mu must
// be held.
func (l *lease) current() (*live, error) {
	if v := l.engine.live[l.run.ID]; v != nil && v.lease == l {
		return v, nil
	}
	return nil, fenced(l.run.ID, l.run.Attempt)
}

// use begins a method that writes: until it calls release, nothing else
// changes the attempt of the run.
func (l *lease) use(ctx context.Context) (v *live, release func(), err error) {
	e := l.engine
	if release, err = e.enterRun(ctx, l.run.ID); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	v, err = l.current()
	e.mu.Unlock()
	if err != nil {
		release()
		return nil, nil, err
	}
	return v, release, nil
}

// Extend implements [background.Lease]. It writes nothing.
func (l *lease) Extend(_ context.Context, b background.Beat) (*background.Cancellation, error) {
	e := l.engine
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.calls.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	v, err := l.current()
	if err != nil {
		return nil, err
	}
	changed := !b.Equal(v.run.Beat)
	v.run.HeartbeatAt = time.Now()
	if changed {
		v.run.Beat, v.dirty = b.Clone(), true
		e.feed.Publish(background.RunEvent(background.EventBeat, v.run))
	}
	if v.run.Cancel == nil {
		return nil, nil
	}
	c := *v.run.Cancel
	return &c, nil
}

// Append implements [background.Lease].
func (l *lease) Append(ctx context.Context, offset int64, p []byte) error {
	v, release, err := l.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := l.engine.reserve(ctx, int64(len(p))); err != nil {
		return err
	}
	before := v.log.size()
	err = v.log.append(offset, p)
	l.engine.used.Add(v.log.size() - before - int64(len(p)))
	return err
}

// Save implements [background.Lease].
func (l *lease) Save(ctx context.Context, data []byte) error {
	v, release, err := l.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	return l.engine.write(ctx, func(w *conn) (func(), error) {
		return nil, save(w, l.run.Session, v.seq, append([]byte{}, data...))
	})
}

// Complete implements [background.Lease].
func (l *lease) Complete(ctx context.Context, status background.Status, b background.Beat, end background.End) (background.Run, error) {
	v, release, err := l.use(ctx)
	if err != nil {
		return background.Run{}, err
	}
	defer release()
	l.engine.mu.Lock()
	r := row{seq: v.seq, stored: stored{Run: v.run.Ended(status, b, end)}}
	l.engine.mu.Unlock()
	ended, err := l.engine.end(ctx, r, l.run.Args)
	if errors.Is(err, background.ErrNotFound) {
		err = fenced(l.run.ID, l.run.Attempt)
	}
	return ended, err
}
