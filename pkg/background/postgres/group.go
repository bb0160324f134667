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

// A group makes one transaction of writes that wait at the same time, so that they share
// its round trips and its commit. Whoever waits first makes it for those behind, as with
// the group commit of databases.
type group struct {
	most     int                // transactions at the same time
	delay    time.Duration      // how long the first write waits for others
	bytes    int64              // in one, if it has several writes
	together func(all []*joint) // makes writes, and sets their errors

	mu      sync.Mutex
	leaders int // that make transactions, or are about to
	waiting []*joint
}

const (
	groupLeaders = 2        // transactions at the same time: one is prepared while another is synced
	groupMost    = 64       // writes in one
	groupBytes   = 64 << 10 // of new records in one, if it has several
)

// A joint is a write that may share its transaction. Before do returns an error, it has
// queued statements at most.
type joint struct {
	ctx    context.Context
	size   int64                           // bytes that it adds to the records, or the log
	permit permitLock                      // that it holds: all are taken before any first
	run    string                          // that first locks, if any. All lock runs in the order of ids, to avoid deadlocks
	first  func(b *pgx.Batch, ahead int64) // as in [database.write]; ahead is the size of those before
	do     func(t *tx) error               // as in [database.write]
	alone  func() error                    // makes it in a transaction of its own
	entry  *entry                          // it makes, in place of do

	leads bool          // it is of its transaction's leader
	lead  chan struct{} // closed when leads is set
	err   error
	apart bool          // in place of err: its caller makes it alone
	done  chan struct{} // closed when err is set
}

// writeShared is [database.write] in a transaction with others, for a write that locks a run
// first: see [joint].
func (d *database) writeShared(ctx context.Context, run string, first func(b *pgx.Batch), do func(t *tx) error) error {
	return d.writes.share(&joint{
		ctx: ctx, run: run, first: func(b *pgx.Batch, _ int64) { first(b) }, do: do,
		alone: func() error { return d.write(ctx, first, do) },
	})
}

// share makes a write in a transaction with those that wait at the same time, and if that
// fails and changed nothing, in one of its own. The end of ctx has it return only before the
// transaction begins, or once all that share it are given up.
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

// result is what share returns once done is closed.
func (j *joint) result() error {
	if j.apart {
		return j.alone()
	}
	return j.err
}

// add has a write wait: for a leader, or to be one.
func (g *group) add(j *joint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, j)
	if g.leaders < g.most {
		g.appoint(j)
	}
}

// handOver ends what a leader does.
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

// appoint has a waiting write make the next transaction, with itself.
func (g *group) appoint(j *joint) {
	g.leaders++
	j.leads = true
	close(j.lead)
}

// remove takes a write back, unless it is being made or leads.
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

// take returns the writes of the next transaction: its leader's, and others that waited
// longest. It has one write a run, since all read before any writes.
func (g *group) take(leader *joint) []*joint {
	g.mu.Lock()
	defer g.mu.Unlock()
	all, size := []*joint{leader}, leader.size

	runs := map[string]bool{leader.run: true}
	full := false // those behind one that has no room wait with it
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

// together makes writes, in one transaction if it can.
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

// wanted is done once none of the writes is wanted any more.
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

// tryTogether makes all writes in one transaction. If it fails and nothing was changed,
// because of one of them or because others got in the way, it reports that each can be
// tried alone.
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
