package sqlite

import (
	"context"
	"database/sql/driver"
	"runtime"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// restoreBatch is the number of records decoded at a time.
const restoreBatch = 256

// A batch is a set of rows of runs that have not ended, and the result of decoding them.
type batch struct {
	rows    [][]driver.Value
	runs    []*active
	damaged []int64
	errs    []error
}

// readActive reads the runs that have not ended, in the order of submission, and adds up
// the size of their logs. Decoding takes longer than reading, and a hundred thousand runs
// may be waiting, so all processors decode.
func (e *Engine) readActive(ctx context.Context) (runs []*active, damaged []int64, err error) {
	var all []*batch
	var workers sync.WaitGroup
	work := make(chan *batch)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for b := range work {
				e.decodeActive(b)
			}
		})
	}

	next := &batch{}
	add := func() {
		all = append(all, next)
		work <- next
		next = &batch{}
	}
	err = e.db.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			if next.rows = append(next.rows, slices.Clone(found)); len(next.rows) == restoreBatch {
				add()
			}
			return nil
		}, selectActive)
	})
	add()
	close(work)
	workers.Wait()

	for _, b := range all {
		runs, damaged = append(runs, b.runs...), append(damaged, b.damaged...)
		for _, err := range b.errs {
			_ = e.db.report(err)
		}
	}
	return runs, damaged, err
}

// decodeActive decodes the rows of a batch.
func (e *Engine) decodeActive(b *batch) {
	for _, found := range b.rows {
		r, err := decode(found)
		if err != nil {
			b.damaged, b.errs = append(b.damaged, r.seq), append(b.errs, err)
			continue
		}
		if !r.unlogged() {
			e.logs.used.Add(e.logs.size(r.Run))
		}
		b.runs = append(b.runs, &active{seq: r.seq, size: r.size, saved: r.saved, state: r.StateSize, run: r.Run})
	}
	b.rows = nil
}

// unlogged reports whether a run that has not ended certainly has no log: it is waiting,
// and had written nothing when it was suspended.
func (r row) unlogged() bool {
	return r.Status == engine.StatusWaiting && r.StateLog == 0 && r.Attempt <= 1
}
