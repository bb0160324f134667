package background

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A notifier takes the notices of ended runs from the engine and hands them to
// Config.OnNotice, from goroutines of its own, so that nothing else waits for it.
type notifier struct {
	*core
	member *member
	runs   *registry

	news  chan struct{} // has an element if there may be notices to take
	stop  chan struct{} // closed when no more come
	once  sync.Once
	ended chan struct{} // closed when the last one was handed out

	mu      sync.Mutex
	queue   []string        // ids of runs whose notice was taken, in order
	wake    chan struct{}   // has an element if there is one
	taken   bool            // no more are added to queue
	viewers map[string]int  // by run: who will show its end to its agent
	held    map[string]bool // runs whose notice waits for the viewers
}

func newNotifier(c *core, m *member, runs *registry) *notifier {
	return &notifier{
		core: c, member: m, runs: runs,
		news: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
		viewers: make(map[string]int), held: make(map[string]bool),
	}
}

// signal puts an element into c if it has none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look says that there may be notices to take.
func (n *notifier) look() { signal(n.news) }

// close says that no more come.
func (n *notifier) close() { n.once.Do(func() { close(n.stop) }) }

// waiting returns how many notices wait for Config.OnNotice.
func (n *notifier) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.queue)
}

// start starts the goroutines. They end when the notices that came before close
// are handed out, or when ctx is done.
func (n *notifier) start(ctx context.Context) {
	if n.cfg.OnNotice == nil {
		close(n.ended)
		return
	}
	n.look()
	go n.take(ctx)
	go n.handOut(ctx)
}

// take moves notices from the engine to the queue.
func (n *notifier) take(ctx context.Context) {
	defer n.add(nil, true)
	for {
		var again <-chan time.Time
		if err := n.takeAll(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("notices of ended background runs not read; trying again", "error", err)
			again = time.After(HeartbeatEvery)
		}
		select {
		case <-n.news:
		case <-again:
		case <-n.stop:
			if err := n.takeAll(ctx); err != nil && ctx.Err() == nil {
				n.log.Warn("notices of ended background runs not read; they stay pending", "error", err)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

func (n *notifier) takeAll(ctx context.Context) error {
	const batch = 100
	for {
		runs, err := n.member.worker().Notices(ctx, batch)
		if errors.Is(err, engine.ErrFenced) {
			return nil // the next lease gets them
		}
		if err != nil {
			return err
		}
		var ids []string
		for _, run := range runs {
			if !n.cfg.expired(run) {
				ids = append(ids, run.ID)
			}
		}
		n.add(ids, false)
		if len(runs) < batch {
			return nil
		}
	}
}

// add adds to the queue.
func (n *notifier) add(ids []string, last bool) {
	n.mu.Lock()
	n.queue = append(n.queue, ids...)
	n.taken = n.taken || last
	n.mu.Unlock()
	signal(n.wake)
}

// next returns the run whose notice is next, "" if there is none now, and whether
// there may be more later.
func (n *notifier) next() (id string, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		n.queue = nil
		return "", !n.taken
	}
	id, n.queue = n.queue[0], n.queue[1:]
	return id, true
}

// handOut passes the notices in the queue to Config.OnNotice.
func (n *notifier) handOut(ctx context.Context) {
	defer close(n.ended)
	for ctx.Err() == nil {
		id, more := n.next()
		switch {
		case id != "":
			n.hand(ctx, id)
		case !more:
			return
		default:
			select {
			case <-n.wake:
			case <-ctx.Done():
			}
		}
	}
}

// hand passes the notice of a run to Config.OnNotice, unless it was acknowledged
// or somebody shows the end at this moment.
func (n *notifier) hand(ctx context.Context, id string) {
	if t := n.runs.get(id); t != nil { // whoever learns of the end finds the slot given back
		select {
		case <-t.done:
		case <-ctx.Done():
			return
		}
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
		n.log.Warn("notice of a background run not handed out; it stays pending", "task_id", id, "error", err)
		return
	case run.Notice != engine.NoticePending:
		return
	}
	n.counters.add(func(s *Stats) { s.Notices++ })
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("OnNotice panicked", "task_id", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	n.cfg.OnNotice(newNotice(run))
}

// view says that the caller waits for the end of these runs and will show it to
// their agent: until the function it returns is called, their notices are held
// back.
func (n *notifier) view(runs []handle) (done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := make([]string, len(runs))
	for i, h := range runs {
		ids[i] = h.id
		n.viewers[h.id]++
	}
	return func() { n.unview(ids) }
}

// unview ends a view.
func (n *notifier) unview(ids []string) {
	n.mu.Lock()
	var late []string
	for _, id := range ids {
		if n.viewers[id]--; n.viewers[id] > 0 {
			continue
		}
		delete(n.viewers, id)
		if n.held[id] {
			delete(n.held, id)
			late = append(late, id)
		}
	}
	n.mu.Unlock()
	if len(late) > 0 {
		n.add(late, false)
	}
}

// seen acknowledges the notices of runs whose end their agent is shown. The end
// is shown even if that cannot be stored.
func (n *notifier) seen(ctx context.Context, session string, ended []engine.Run) {
	var ids []string
	for _, run := range ended {
		if run.Notice == engine.NoticePending {
			ids = append(ids, run.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	if err := n.engine.Acknowledge(context.WithoutCancel(ctx), session, ids); err != nil {
		n.log.Warn("notice of an end that was seen not acknowledged", "task_ids", ids, "error", err)
	}
}
