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
	// seconds, timers and pipes included; the TypeScript SDK gives up after a minute.
	heartbeatInterval = 10 * time.Second
	noticeInterval    = 250 * time.Millisecond // shortest time between two notifications of a call
)

// reporter sends a client the progress of a call: the newest report of the tool, at most
// once per noticeInterval. After heartbeatInterval without a report, it repeats the last
// one, or says how long the call has run. A new narration is a separate message. Reports
// never wait for the client.
type reporter struct {
	notify  func(context.Context, *mcp.ProgressNotificationParams)
	started time.Time
	cancel  context.CancelFunc
	running sync.WaitGroup
	fresh   chan server.Progress // the newest report, until it is taken
	last    float64              // last progress sent; -1 before the first
	told    string               // last narration sent
}

// startReporter starts a reporter that runs until it is stopped or ctx is done.
func startReporter(ctx context.Context, notify func(context.Context, *mcp.ProgressNotificationParams)) *reporter {
	ctx, cancel := context.WithCancel(ctx)
	r := &reporter{notify: notify, started: time.Now(), cancel: cancel, fresh: make(chan server.Progress, 1), last: -1}
	r.running.Go(func() { r.run(ctx) })
	return r
}

// stop returns once no notification will follow. It sends a last report only if its
// narration is new.
func (r *reporter) stop(ctx context.Context) {
	r.cancel()
	r.running.Wait()
	select {
	case p := <-r.fresh:
		if p.Narration != r.told && ctx.Err() == nil {
			r.notify(ctx, r.notice(p))
		}
	default:
	}
}

// report queues a report of the tool, and replaces one that was not sent yet. It does not
// block.
func (r *reporter) report(p server.Progress) {
	select {
	case <-r.fresh:
	default:
	}
	select {
	case r.fresh <- p:
	default: // another report came at the same time
	}
}

func (r *reporter) run(ctx context.Context) {
	heartbeat := time.NewTimer(heartbeatInterval)
	defer heartbeat.Stop()

	var latest server.Progress
	for {
		select {
		case latest = <-r.fresh:
			if ctx.Err() != nil {
				r.report(latest) // for stop
			}
		case <-heartbeat.C:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			return
		}
		r.notify(ctx, r.notice(latest))

		heartbeat.Reset(heartbeatInterval)
		select {
		case <-time.After(noticeInterval):
		case <-ctx.Done():
			return
		}
	}
}

// notice returns the next notification. MCP wants each progress to be larger than the one
// before, whatever the tool reports.
func (r *reporter) notice(p server.Progress) *mcp.ProgressNotificationParams {
	const maxExact = 1e12 // up to here, a small step changes the number
	if p.Done <= r.last || p.Done > maxExact {
		p.Done = max(r.last, 0) + max(1e-6, r.last*1e-9)
	}
	r.last = p.Done

	message := p.String()
	if p.Narration != r.told {
		message, r.told = p.Narration, p.Narration
	}
	if message == "" {
		message = "running for " + time.Since(r.started).Truncate(time.Second).String()
	}
	return &mcp.ProgressNotificationParams{Progress: p.Done, Total: max(p.Total, 0), Message: message}
}
