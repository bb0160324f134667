package mcpapi

import (
	"context"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host"
)

const (
	// heartbeatEvery is how long a client hears nothing of a call. Clients time
	// out after as little as a minute of silence; 15 seconds are what they may
	// count on, timers and pipes included.
	heartbeatEvery = 10 * time.Second
	// noticeEvery is the shortest time between two notices of a call.
	noticeEvery = 250 * time.Millisecond
)

// notice is one progress notification.
type notice struct {
	done, total float64 // total is 0 if unknown
	message     string
}

// reporter tells a client how far a call is: the newest report of the tool, not
// more often than noticeEvery, and the last one again, or just how long the
// call has run, when there is none for heartbeatEvery. Reports never wait for
// the client.
type reporter struct {
	notify  func(context.Context, notice)
	started time.Time
	cancel  context.CancelFunc
	running sync.WaitGroup
	fresh   chan struct{} // there is a report to tell

	mu     sync.Mutex
	latest host.Progress

	told bool // these two belong to run
	last float64
}

// startReporter starts a reporter that runs until it is stopped or ctx is done.
func startReporter(ctx context.Context, notify func(context.Context, notice)) *reporter {
	ctx, cancel := context.WithCancel(ctx)
	r := &reporter{notify: notify, started: time.Now(), cancel: cancel, fresh: make(chan struct{}, 1)}
	r.running.Go(func() { r.run(ctx) })
	return r
}

// stop returns when no notice will follow.
func (r *reporter) stop() {
	r.cancel()
	r.running.Wait()
}

// report takes a report of the tool. It does not block.
func (r *reporter) report(p host.Progress) {
	r.mu.Lock()
	r.latest = p
	r.mu.Unlock()
	select {
	case r.fresh <- struct{}{}:
	default: // the one waiting is told with this report
	}
}

func (r *reporter) run(ctx context.Context) {
	heartbeat := time.NewTimer(heartbeatEvery)
	defer heartbeat.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-r.fresh:
		case <-heartbeat.C:
		}
		r.notify(ctx, r.next())
		heartbeat.Reset(heartbeatEvery)
		pause.Reset(noticeEvery)
	}
}

// next is the notice to send now.
func (r *reporter) next() notice {
	r.mu.Lock()
	p := r.latest
	r.mu.Unlock()
	n := notice{done: r.after(p.Done), total: max(p.Total, 0), message: p.Message}
	if n.message == "" {
		n.message = "running for " + time.Since(r.started).Truncate(time.Second).String()
	}
	return n
}

// exact bounds the numbers that can be told apart when a little is added.
const exact = 1e12

// after is the number to tell for done. MCP wants each one larger than the one
// before, whatever the tool says: one that is not is told as a trifle more than
// the last.
func (r *reporter) after(done float64) float64 {
	if r.told && done <= r.last || done > exact {
		done = r.last + max(1e-6, r.last*1e-9)
	}
	r.told, r.last = true, done
	return done
}
