package mcpapi

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// maxNotices is how many notices the result of one call has.
const maxNotices = 10

// deliveries are the runs whose notices are in a result that is not written yet. It
// keeps calls that end at the same time from showing a notice twice.
type deliveries struct {
	listing sync.RWMutex // held for reading from the list of pending notices to the last take

	mu   sync.Mutex
	runs map[string]bool // by id; at most maxNotices for each request without an answer
}

// take reports whether nobody else delivers the notice of a run.
func (d *deliveries) take(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs[id] {
		return false
	}
	if d.runs == nil {
		d.runs = map[string]bool{}
	}
	d.runs[id] = true
	return true
}

// give ends the delivery of notices. It waits for lists that were read before they were
// acknowledged: they would be taken again.
func (d *deliveries) give(ids []string) {
	d.listing.Lock()
	defer d.listing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.runs, id)
	}
}

// addNotices adds the pending notices of the caller's session to the result of a call
// that began at started: those of runs that were there before it. They are
// acknowledged once the result is written. If that fails, they stay pending and come
// with a later result. A client that takes tasks learns of its tasks otherwise.
func (a *api) addNotices(ctx context.Context, who caller, started time.Time, out *mcp.CallToolResult) {
	if who.receipt == nil || who.Session == "" {
		return
	}

	view := a.service.Session(who.Session)
	ids, text, err := a.takeNotices(ctx, view, who, started)
	if err != nil {
		a.delivering.give(ids)
		if ctx.Err() == nil { // else nobody waits for the result
			a.log.Warn("cannot read the notices of a session", "session", who.Session, "error", err)
		}
		return
	}
	if len(ids) == 0 {
		return
	}

	out.Content = append(out.Content, &mcp.TextContent{Text: text})
	who.receipt.expect(func(written bool) {
		defer a.delivering.give(ids)
		if !written {
			return
		}
		if err := view.Acknowledge(context.WithoutCancel(ctx), ids); err != nil {
			a.log.Warn("cannot acknowledge notices: they are shown again", "session", who.Session, "error", err)
		}
	})
}

// takeNotices returns what to show of the pending notices of a session, and the runs
// they are of, whose delivery has begun even if it fails.
func (a *api) takeNotices(ctx context.Context, view server.Session, who caller, started time.Time) (ids []string, text string, err error) {
	a.delivering.listing.RLock()
	defer a.delivering.listing.RUnlock()
	found, err := view.SelectNotices(ctx, maxNotices, func(run wire.Run) bool {
		if run.CreatedAt.After(started) || who.tasks && run.Origin == wire.OriginParked || !a.delivering.take(run.TaskID) {
			return false
		}
		ids = append(ids, run.TaskID)
		return true
	})
	return ids, found.Text, err
}
