package mcpapi

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
)

const (
	// heartbeatInterval is the longest silence of a call. Clients may rely on 15
	// seconds, timers and pipes included; some give up after a minute.
	heartbeatInterval = 10 * time.Second
	noticeInterval    = 250 * time.Millisecond // the shortest time between two notices of a call
)

// reporter sends a client the progress of a call: the newest report of the tool, at
// most once in noticeInterval, and if there is none for heartbeatInterval the last
// one again, or how long the call has run. Reports never wait for the client.
type reporter struct {
	notify  func(context.Context, *mcp.ProgressNotificationParams)
	started time.Time
	cancel  context.CancelFunc
	running sync.WaitGroup
	fresh   chan struct{} // a report was not sent yet

	mu     sync.Mutex
	latest server.Progress

	sent bool // these two belong to run
	last float64
}

// startReporter starts a reporter that runs until it is stopped or ctx is done.
func startReporter(ctx context.Context, notify func(context.Context, *mcp.ProgressNotificationParams)) *reporter {
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
func (r *reporter) report(p server.Progress) {
	r.mu.Lock()
	r.latest = p
	r.mu.Unlock()

	select {
	case r.fresh <- struct{}{}:
	default: // the waiting notice will have this report
	}
}

func (r *reporter) run(ctx context.Context) {
	heartbeat := time.NewTimer(heartbeatInterval)
	defer heartbeat.Stop()

	for {
		select {
		case <-r.fresh:
		case <-heartbeat.C:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			return
		}
		r.notify(ctx, r.next())

		heartbeat.Reset(heartbeatInterval)
		select {
		case <-time.After(noticeInterval):
		case <-ctx.Done():
			return
		}
	}
}

// next is the notice to send now.
func (r *reporter) next() *mcp.ProgressNotificationParams {
	r.mu.Lock()
	p := r.latest
	r.mu.Unlock()

	n := &mcp.ProgressNotificationParams{Progress: r.after(p.Done), Total: max(p.Total, 0), Message: p.Message}
	if n.Message == "" {
		n.Message = "running for " + time.Since(r.started).Truncate(time.Second).String()
	}
	return n
}

// maxExact is the largest number that a small step still changes.
const maxExact = 1e12

// after is the number to send for done: MCP wants each one to be larger than the
// one before, whatever the tool reports.
func (r *reporter) after(done float64) float64 {
	if r.sent && done <= r.last || done > maxExact {
		done = r.last + max(1e-6, r.last*1e-9)
	}
	r.sent, r.last = true, done
	return done
}
