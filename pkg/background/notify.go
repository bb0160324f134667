package background

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// A notifier hands the notices of ended runs to Config.OnNotice, from a
// goroutine of its own, so that nothing else waits for it.
type notifier struct {
	mu    sync.Mutex
	ids   []string      // of runs whose notice is to be handed out, in order
	wake  chan struct{} // has room for one
	once  sync.Once
	stop  chan struct{} // closed when no more come
	ended chan struct{} // closed when the goroutine has ended
}

func newNotifier() *notifier {
	return &notifier{wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
}

func (n *notifier) add(id string) {
	n.mu.Lock()
	n.ids = append(n.ids, id)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// addEarlier puts the notices of runs that ended before born to the front.
func (n *notifier) addEarlier(notices []Notice, born time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []string
	for _, notice := range notices {
		if notice.At.Before(born) {
			ids = append(ids, notice.ID)
		}
	}
	n.ids = append(ids, n.ids...)
}

// close says that no more come.
func (n *notifier) close() { n.once.Do(func() { close(n.stop) }) }

// next returns the run whose turn it is.
func (n *notifier) next() (id string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ids) == 0 {
		n.ids = nil
		return "", false
	}
	id, n.ids = n.ids[0], n.ids[1:]
	return id, true
}

func (n *notifier) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.ids)
}

// notify is the goroutine of the notifier. It ends when what came before stop
// is handed out, or when ctx is done.
func (m *Manager) notify(ctx context.Context) {
	defer close(m.notices.ended)
	m.handAgain(ctx)
	for stopping := false; ; {
		for {
			id, ok := m.notices.next()
			if !ok || ctx.Err() != nil {
				break
			}
			m.hand(ctx, id)
		}
		if stopping || ctx.Err() != nil {
			return
		}
		select {
		case <-m.notices.wake:
		case <-m.notices.stop:
			stopping = true
		case <-ctx.Done():
		}
	}
}

// handAgain puts the notices of earlier processes before those of this one. If
// they cannot be read, it tries again.
func (m *Manager) handAgain(ctx context.Context) {
	if m.cfg.OnNotice == nil {
		return
	}
	for {
		notices, err := m.pending(ctx, "")
		if err == nil {
			m.notices.addEarlier(notices, m.born)
			return
		}
		m.log.Warn("notices of ended background runs not read; trying again", "error", err)
		select {
		case <-time.After(HeartbeatEvery):
		case <-m.notices.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// hand gives the notice of a run to OnNotice, unless it was taken by now.
func (m *Manager) hand(ctx context.Context, id string) {
	run, err := m.engine.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound) || ctx.Err() != nil:
		return
	case err != nil:
		m.log.Warn("notice of a background run not handed out; it stays pending", "task_id", id, "error", err)
		return
	case run.Notice != NoticePending:
		return
	}
	m.count(func(s *Stats) { s.Notices++ })
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("OnNotice panicked", "task_id", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	m.cfg.OnNotice(newNotice(run))
}

// watch says that somebody waits for the end of these runs and will show it to
// their agent: until unwatch, the end is not told otherwise. It returns the
// tasks to unwatch: those whose end is not stored.
func watch(runs []handle) (watched []*task) {
	for _, h := range runs {
		if h.task == nil {
			continue
		}
		h.task.mu.Lock()
		if !h.task.ended() || h.task.unstored() {
			h.task.viewers++
			watched = append(watched, h.task)
		}
		h.task.mu.Unlock()
	}
	return watched
}

// unwatch ends a watch.
func (m *Manager) unwatch(watched []*task) {
	for _, t := range watched {
		t.mu.Lock()
		t.viewers--
		t.mu.Unlock()
		m.tell(t)
	}
}

// tell puts the notice of a stored end on its way, once, unless somebody shows
// the end at this moment.
func (m *Manager) tell(t *task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stored || t.told || t.viewers > 0 {
		return
	}
	t.told = true
	if m.cfg.OnNotice != nil && t.final.Notice == NoticePending && !t.seen {
		m.notices.add(t.run.ID)
	}
}
