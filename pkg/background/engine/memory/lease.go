package memory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A lease is the right of a worker to work on a run.
type lease struct {
	worker     *worker
	run        engine.Run
	checkpoint []byte
}

// Run implements [engine.Lease].
func (l *lease) Run() engine.Run { return l.run.Clone() }

// Checkpoint implements [engine.Lease].
func (l *lease) Checkpoint() []byte { return bytes.Clone(l.checkpoint) }

// write calls do with the record if the lease is its current one.
func (l *lease) write(do func(e *Engine, r *record)) error {
	e := l.worker.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	r := e.runs[l.run.ID]
	if r == nil || r.run.Status != engine.StatusRunning || r.run.Attempt != l.run.Attempt || r.holder != l.worker {
		return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, l.run.ID, l.run.Attempt)
	}
	if err := l.worker.check(); err != nil {
		return err
	}
	do(e, r)
	return nil
}

// Report implements [engine.Lease].
func (l *lease) Report(_ context.Context, b engine.Beat) error {
	return l.write(func(e *Engine, r *record) { e.beat(r, b) })
}

// Append implements [engine.Lease].
func (l *lease) Append(_ context.Context, offset int64, p []byte) error {
	return l.write(func(e *Engine, r *record) {
		r.log.AppendAt(offset, p)
		e.count(r)
	})
}

// Save implements [engine.Lease].
func (l *lease) Save(_ context.Context, data []byte) error {
	return l.write(func(e *Engine, r *record) {
		r.checkpoint = bytes.Clone(data)
		e.count(r)
	})
}

// Complete implements [engine.Lease].
func (l *lease) Complete(_ context.Context, status engine.Status, b engine.Beat, end engine.End) (run engine.Run, err error) {
	err = l.write(func(e *Engine, r *record) { run = e.end(r, r.run.Finish(status, b, end)) })
	return run, err
}
