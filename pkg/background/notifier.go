package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// handAgain is the pause before the next attempt to hand out a notice whose run could
// not be read.
const handAgain = 10 * time.Second

// A notifier takes the notices of ended runs from the engine and hands them to
// Config.OnNotice. Since that may block, one goroutine takes them and another
// one hands them out.
type notifier struct {
	*core
	member *member
	runs   *registry

	news  chan struct{} // has an element if there may be notices to take
	stop  func()        // takes the remaining notices, and no more after them
	ended chan struct{} // closed when the last one was handed out

	mu      sync.Mutex
	queue   []string        // ids of runs whose notices were taken, in order
	changed *sync.Cond      // queue or taken has changed
	taken   bool            // nothing more is added to queue
	viewers map[string]int  // by run: number of viewers that will show its end to the session's agent
	held    map[string]bool // runs whose notices wait for their viewers
}

// startNotifier starts a notifier. The notifier ends when all notices taken before stop
// are handed out, or when ctx is done.
func startNotifier(ctx context.Context, c *core, m *member, runs *registry) *notifier {
	n := &notifier{
		core: c, member: m, runs: runs, stop: func() {},
		news: make(chan struct{}, 1), ended: make(chan struct{}),
		viewers: make(map[string]int), held: make(map[string]bool),
	}
	n.changed = sync.NewCond(&n.mu)
	if n.cfg().OnNotice == nil {
		close(n.ended)
		return n
	}

	stopping, stop := context.WithCancel(ctx)
	n.stop = stop
	n.look()
	go n.take(ctx, stopping.Done())
	go n.handOut(ctx)
	return n
}

// look signals that there may be notices to take. The heartbeat repeats the signal as
// long as there are some.
func (n *notifier) look() { signal(n.news) }

// signal puts an element into c if it is empty.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waiting returns how many notices wait for Config.OnNotice.
func (n *notifier) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.queue)
}

// take moves notices from the engine to the queue.
func (n *notifier) take(ctx context.Context, stopping <-chan struct{}) {
	for last := false; !last; {
		select {
		case <-n.news:
		case <-stopping:
			last = true
		}
		if err := n.takeAll(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("notices of ended background runs not read; they stay pending", "error", err)
		}
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = true
	n.changed.Signal()
}

func (n *notifier) takeAll(ctx context.Context) error {
	const batch = 100
	for {
		runs, err := n.member.worker().Notices(ctx, batch)
		if errors.Is(err, engine.ErrFenced) {
			return nil // the next lease gets them
		}

		for _, run := range runs {
			if !n.cfg().expired(run) {
				n.add(run.ID)
			}
		}
		if err != nil {
			return err
		}
		if len(runs) < batch {
			return nil
		}
	}
}

// add adds ids to the queue.
func (n *notifier) add(ids ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, ids...)
	n.changed.Signal()
}

// handOut passes the notices in the queue to Config.OnNotice.
func (n *notifier) handOut(ctx context.Context) {
	defer close(n.ended)
	for {
		n.mu.Lock()
		for len(n.queue) == 0 && !n.taken {
			n.changed.Wait()
		}
		if len(n.queue) == 0 || ctx.Err() != nil {
			n.mu.Unlock()
			return
		}
		id := n.queue[0]
		n.queue = n.queue[1:]
		n.mu.Unlock()

		n.hand(ctx, id)
	}
}

// hand passes the notice of a run to Config.OnNotice, unless it was acknowledged
// or its end is being shown.
func (n *notifier) hand(ctx context.Context, id string) {
	if t := n.runs.get(id); t != nil && !closedFirst(t.done, ctx.Done()) { // the slot is free before anyone sees the end
		return
	}
	n.mu.Lock()
	viewed := n.viewers[id] > 0
	if viewed {
		n.held[id] = true
	}
	n.mu.Unlock()
	if viewed {
		return
	}

	run, err := n.engine.Get(ctx, id)
	switch {
	case errors.Is(err, engine.ErrNotFound) || ctx.Err() != nil:
		return
	case err != nil:
		n.log.Warn("notice of a background run not handed out; trying again", "task_id", id, "error", err)
		time.AfterFunc(handAgain, func() { n.add(id) })
		return
	case run.Notice != engine.NoticePending:
		return
	}

	n.counters.add(func(s *Stats) { s.Notices++ })
	if err := guarded(func() error { n.cfg().OnNotice(run); return nil }); err != nil {
		n.log.Error("OnNotice panicked", "task_id", id, "error", err)
	}
}

// view holds back the notices of runs whose end the caller will show to their
// agent, until done is called.
func (n *notifier) view(runs []handle) (done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := make([]string, len(runs))
	for i, h := range runs {
		ids[i] = h.run.ID
		n.viewers[h.run.ID]++
	}
	return func() { n.unview(ids) }
}

// unview ends a view.
func (n *notifier) unview(ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		if n.viewers[id]--; n.viewers[id] > 0 {
			continue
		}

		delete(n.viewers, id)
		if n.held[id] {
			delete(n.held, id)
			n.queue = append(n.queue, id)
			n.changed.Signal()
		}
	}
}

// seen acknowledges the notices of runs whose end is being shown to the session's
// agent. The end is shown even if storing that fails.
func (n *notifier) seen(ctx context.Context, ended []engine.Run) {
	ids := map[string][]string{} // by session
	for _, run := range ended {
		if run.Notice == engine.NoticePending {
			ids[run.Session] = append(ids[run.Session], run.ID)
		}
	}
	for session, ids := range ids {
		if err := n.engine.Acknowledge(context.WithoutCancel(ctx), session, ids); err != nil {
			n.log.Warn("notice of an end that was seen not acknowledged", "task_ids", ids, "error", err)
		}
	}
}
