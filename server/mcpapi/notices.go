package mcpapi

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxNotices  = 10   // notices in one result
	maxNotified = 1024 // sessions that are remembered
)

// shownNotices remembers the runs whose notices are part of a result, by session, until
// the next request of the session acknowledges them. Until then, it keeps notices from
// being shown twice. Beyond maxNotified sessions it forgets one, whose notices are then
// shown again.
type shownNotices struct {
	listing sync.RWMutex // held for reading from the listing of pending notices until the last take

	mu       sync.Mutex
	sessions map[string]map[string]bool // by session and run: whether the result is complete
}

// take reports whether the notice of a run is not in a result yet, and records that it is.
func (n *shownNotices) take(session, run string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, found := n.sessions[session][run]; found {
		return false
	}

	if n.sessions == nil {
		n.sessions = map[string]map[string]bool{}
	}
	if n.sessions[session] == nil {
		for other := range n.sessions {
			if len(n.sessions) < maxNotified {
				break
			}
			delete(n.sessions, other)
		}
		n.sessions[session] = map[string]bool{}
	}
	n.sessions[session][run] = false
	return true
}

// complete records that a result with these notices is about to be sent.
func (n *shownNotices) complete(session string, runs []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, run := range runs {
		if _, found := n.sessions[session][run]; found {
			n.sessions[session][run] = true
		}
	}
}

// sent returns the runs whose notices are in complete results.
func (n *shownNotices) sent(session string) (runs []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for run, complete := range n.sessions[session] {
		if complete {
			runs = append(runs, run)
		}
	}
	return runs
}

// give forgets notices, because they were acknowledged or the result was not sent. It
// waits for callers that listed the notices before, because they would take them again.
func (n *shownNotices) give(session string, runs []string) {
	n.listing.Lock()
	defer n.listing.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, run := range runs {
		delete(n.sessions[session], run)
	}
	if len(n.sessions[session]) == 0 {
		delete(n.sessions, session)
	}
}

// acknowledge acknowledges the notices in earlier results of a session when it makes
// another request.
func (a *api) acknowledge(ctx context.Context, session string) {
	runs := a.notified.sent(session)
	if len(runs) == 0 {
		return
	}
	if err := a.service.Session(session).Acknowledge(context.WithoutCancel(ctx), runs); err != nil {
		a.log.Warn("cannot acknowledge notices: they are shown again", "session", session, "error", err)
	}
	a.notified.give(session, runs)
}

// addNotices adds the pending notices of the caller's session to the result of a call,
// for runs that existed before the call began at started. They stay pending if the client
// is gone, or if the result has structuredContent, because some clients show nothing
// else. A client that supports tasks learns of its tasks in another way.
func (a *api) addNotices(ctx context.Context, who caller, started time.Time, out *mcp.CallToolResult) {
	if who.receipt == nil || who.Session == "" || out.StructuredContent != nil || ctx.Err() != nil {
		return
	}

	runs, text, err := a.takeNotices(ctx, who, started)
	lost := func() { a.notified.give(who.Session, runs) }
	switch {
	case err != nil:
		lost()
		if ctx.Err() == nil { // otherwise nobody waits for the result
			a.log.Warn("cannot read the notices of a session", "session", who.Session, "error", err)
		}
	case len(runs) == 0:
	case !who.receipt.expect(lost):
		lost()
	default:
		out.Content = append(out.Content, &mcp.TextContent{Text: text})
		a.notified.complete(who.Session, runs)
	}
}

// takeNotices returns the text of the pending notices of the caller's session, and their
// runs. The notices are taken even if it fails.
func (a *api) takeNotices(ctx context.Context, who caller, started time.Time) (runs []string, text string, err error) {
	a.notified.listing.RLock()
	defer a.notified.listing.RUnlock()
	found, err := a.service.Session(who.Session).SelectNotices(ctx, maxNotices, func(run wire.Run) bool {
		if run.CreatedAt.After(started) || who.tasks && run.Origin == wire.OriginParked || !a.notified.take(who.Session, run.TaskID) {
			return false
		}
		runs = append(runs, run.TaskID)
		return true
	})
	return runs, found.Text, err
}
