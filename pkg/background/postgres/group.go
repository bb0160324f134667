package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A group combines concurrent writes into one transaction, so that they share its round
// trips and its commit. The first waiting write makes the transaction for those behind
// it, as in the group commit of databases.
type group struct {
	most     int                // maximum number of concurrent transactions
	delay    time.Duration      // time that the first write waits for others
	bytes    int64              // maximum size of a transaction with several writes, in bytes
	together func(all []*joint) // makes writes, and sets their errors

	mu      sync.Mutex
	leaders int // number of writes that make transactions, or are about to
	waiting []*joint
}

const (
	groupLeaders = 2        // maximum number of concurrent transactions: one is prepared while another is synced
	groupMost    = 64       // maximum number of writes in one transaction
	groupBytes   = 64 << 10 // maximum size of the new records in one transaction with several writes, in bytes
)

// A joint is a write that may share its transaction. If do returns an error, it must
// not have done more than queue statements.
type joint struct {
	ctx    context.Context
	size   int64                           // number of bytes that it adds to the records or the log
	permit permitLock                      // lock that it needs; all writes' locks are taken before the first call of first
	run    string                          // id of the run that first locks, if any. Runs are locked in the order of their ids, to avoid deadlocks
	first  func(b *pgx.Batch, ahead int64) // as in [database.write]; ahead is the size of the writes before it
	do     func(t *tx) error               // as in [database.write]
	alone  func() error                    // makes the write in a transaction of its own
	entry  *entry                          // entry to append, in place of do

	leads bool          // whether it is the leader of its transaction
	lead  chan struct{} // closed when leads is set
	err   error
	apart bool          // whether the caller has to make the write alone; err is not set then
	done  chan struct{} // closed when err or apart is set
}

// writeShared is like [database.write], but in a transaction with other writes. It is for a
// write that locks a run first: see [joint].
func (d *database) writeShared(ctx context.Context, run string, first func(b *pgx.Batch), do func(t *tx) error) error {
	return d.writes.share(&joint{
		ctx: ctx, run: run, first: func(b *pgx.Batch, _ int64) { first(b) }, do: do,
		alone: func() error { return d.write(ctx, first, do) },
	})
}

// share makes a write in a transaction with other waiting writes. If that fails without a
// change, it makes the write in a transaction of its own. If ctx ends, share returns early only
// if the transaction has not begun, or once the callers of all its writes have given up.
func (g *group) share(j *joint) error {
	j.lead, j.done = make(chan struct{}), make(chan struct{})
	g.add(j)

	select {
	case <-j.done:
		return j.result()
	case <-j.lead:
	case <-j.ctx.Done():
		if g.remove(j) {
			return j.ctx.Err()
		}
		select {
		case <-j.done: // a leader has taken it
			return j.result()
		case <-j.lead:
		}
	}

	if g.delay > 0 {
		time.Sleep(g.delay)
	}
	all := g.take(j)
	g.together(all)
	for _, other := range all {
		close(other.done)
	}
	g.handOver()
	return j.result()
}

// result returns the result of share once done is closed.
func (j *joint) result() error {
	if j.apart {
		return j.alone()
	}
	return j.err
}

// add queues a write. It waits for a leader, or becomes one.
func (g *group) add(j *joint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, j)
	if g.leaders < g.most {
		g.appoint(j)
	}
}

// handOver ends the work of a leader, and appoints another one if writes are waiting.
func (g *group) handOver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaders--
	for _, j := range g.waiting {
		if !j.leads {
			g.appoint(j)
			return
		}
	}
}

// appoint makes a waiting write the leader of the next transaction.
func (g *group) appoint(j *joint) {
	g.leaders++
	j.leads = true
	close(j.lead)
}

// remove withdraws a write, unless it is in progress or leads. It reports whether it did.
func (g *group) remove(j *joint) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, j)
	if i < 0 || j.leads {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// take returns the writes of the next transaction: its leader, and the others that have waited
// longest. It takes only one write per run, since all of them read before any of them writes.
func (g *group) take(leader *joint) []*joint {
	g.mu.Lock()
	defer g.mu.Unlock()
	all, size := []*joint{leader}, leader.size

	runs := map[string]bool{leader.run: true}
	full := false // once one does not fit, the ones behind it wait too
	g.waiting = slices.DeleteFunc(g.waiting, func(j *joint) bool {
		if j == leader || j.leads {
			return j == leader
		}
		full = full || len(all) == groupMost || size+j.size > g.bytes
		if full || j.run != "" && runs[j.run] {
			return false
		}
		all, size = append(all, j), size+j.size
		runs[j.run] = true
		return true
	})
	return all
}

// together makes writes, in one transaction if possible.
func (d *database) together(all []*joint) {
	slices.SortStableFunc(all, func(a, b *joint) int { return cmp.Compare(a.run, b.run) })
	if len(all) > 1 {
		ctx, cancel := wanted(all)
		err, again := d.tryTogether(ctx, all)
		cancel()
		if !again {
			for _, j := range all {
				j.err = cmp.Or(j.err, d.fail(err))
			}
			return
		}
		for _, j := range all {
			j.apart = true
		}
		return
	}
	all[0].err = all[0].alone()
}

// wanted returns a context that ends once the callers of all writes have given up.
func wanted(all []*joint) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	var left atomic.Int64
	left.Store(int64(len(all)))
	stops := make([]func() bool, 0, len(all))
	for _, j := range all {
		stops = append(stops, context.AfterFunc(j.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}

	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// tryTogether makes all writes in one transaction. If it fails without a change,
// because of one of them or because of a conflict, again reports that each can be tried
// alone.
func (d *database) tryTogether(ctx context.Context, all []*joint) (err error, again bool) {
	first := func(b *pgx.Batch) {
		permits := make([]permitLock, len(all))
		for i, j := range all {
			permits[i] = j.permit
		}
		take(b, permits...)

		ahead := int64(0)
		for _, j := range all {
			j.first(b, ahead)
			ahead += j.size
		}
	}
	alive, err := d.try(ctx, first, func(t *tx) error {
		for _, j := range all {
			j.err = nil
			before := *t
			if err := j.do(t); err != nil {
				if t.sent > before.sent {
					return err
				}
				j.err = d.fail(err)
				t.pending.QueuedQueries = t.pending.QueuedQueries[:len(before.pending.QueuedQueries)]
				t.charges, t.events, t.ended = before.charges, before.events, before.ended
			}
		}
		return nil
	})
	return err, err != nil && alive
}
