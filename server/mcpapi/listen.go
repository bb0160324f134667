package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/pkg/background"
)

const (
	methodAcknowledged = "notifications/subscriptions/acknowledged"
	methodTasks        = "notifications/tasks"

	maxHeard  = 64          // tasks that one subscription may hear of
	hearEvery = time.Second // the shortest time between two notifications of a task
)

// outlet is the way of a client around the SDK, which knows no tasks: of which of
// them a subscription wants to hear, and what it hears.
type outlet struct {
	taskIDs func(subscription any) []string
	send    func(message []byte) error
}

type outletKey struct{}

// listener is a request to subscriptions/listen. The SDK answers it. Under which
// id, and what else it agreed to tell, is known when it acknowledges the request.
type listener struct {
	who     caller
	outlet  outlet
	id      any               // of the subscription
	tasks   map[string]*heard // that have not ended, by id
	refused error
	telling sync.WaitGroup
}

type listenerKey struct{}

// heard is what a subscription has heard of a task.
type heard struct {
	fresh     bool // there may be something new
	status    taskStatus
	message   string
	questions []string
}

// listen answers a subscription when the SDK has nothing to tell it any more, and
// the tasks it is for have ended.
func (a *api) listen(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		r, ok := req.(*mcp.SubscriptionsListenRequest)
		way, can := ctx.Value(outletKey{}).(outlet)
		if !ok || !can || r.Params == nil {
			return next(ctx, method, req)
		}
		l := &listener{who: a.caller(r), outlet: way, tasks: map[string]*heard{}}
		result, err := next(context.WithValue(ctx, listenerKey{}, l), method, req)
		l.telling.Wait()
		if l.refused != nil {
			return nil, l.refused
		}
		return result, err
	}
}

// acknowledge says to a subscription of which tasks it will hear: those of its
// session.
func (a *api) acknowledge(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		agreed, ok := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams)
		l, listens := ctx.Value(listenerKey{}).(*listener)
		if !ok || !listens {
			return next(ctx, method, req)
		}
		l.id = agreed.Meta[mcp.MetaKeySubscriptionID]
		if l.refused = a.find(ctx, l, l.outlet.taskIDs(l.id)); l.refused != nil {
			return nil, l.refused
		}
		if len(l.tasks) == 0 {
			return next(ctx, method, req)
		}
		type notifications struct {
			mcp.NotificationSubscriptions
			TaskIDs []string `json:"taskIds"`
		}
		err := l.send(methodAcknowledged, map[string]any{
			"_meta": agreed.Meta, "notifications": notifications{agreed.Notifications, slices.Sorted(maps.Keys(l.tasks))},
		})
		if err == nil {
			l.telling.Go(func() {
				defer func() { // see contain
					if v := recover(); v != nil {
						a.log.Error("subscription panicked", "panic", v, "stack", string(debug.Stack()))
					}
				}()
				a.tellTasks(ctx, l)
			})
		}
		return nil, err
	}
}

// find looks which of those tasks a subscription may hear of. Its error is for the
// client.
func (a *api) find(ctx context.Context, l *listener, ids []string) error {
	if len(ids) > 0 && !l.who.tasks {
		return missingTasks()
	}
	for _, id := range ids {
		_, err := a.service.Runs().Get(ctx, l.who.session, id)
		switch {
		case err == nil:
			l.tasks[id] = &heard{fresh: true}
		case !errors.Is(err, background.ErrNotFound):
			return taskProblem(id, err)
		}
	}
	return nil
}

func (l *listener) send(method string, params any) error {
	data, err := json.Marshal(params)
	if err != nil {
		return err
	}
	message, err := jsonrpc.EncodeMessage(&jsonrpc.Request{Method: method, Params: data})
	if err != nil {
		return err
	}
	return l.outlet.send(message)
}

// tellTasks tells how the tasks are, and how that changes, until they have ended
// or ctx is done.
func (a *api) tellTasks(ctx context.Context, l *listener) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	happens := a.service.Runs().Watch(ctx, l.who.session) // before the first look, so that nothing is missed between
	pause := time.NewTimer(0)
	defer pause.Stop()
	for rested := false; len(l.tasks) > 0; {
		quiet := l.quiet()
		asked, end := a.service.Asked(l.who.session, quiet)
		select {
		case e := <-happens: // the zero event: ctx is done
			l.happened(e)
		case <-asked:
			l.look(quiet)
		case <-pause.C:
			rested = true
		case <-ctx.Done():
		}
		end()
		if rested && len(l.quiet()) < len(l.tasks) {
			if a.tellFresh(ctx, l) != nil {
				return
			}
			rested = false
			pause.Reset(hearEvery)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// quiet are the tasks that nothing is to be told of, sorted.
func (l *listener) quiet() (ids []string) {
	for id, h := range l.tasks {
		if !h.fresh {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// look has tasks be looked at.
func (l *listener) look(ids []string) {
	for _, id := range ids {
		l.tasks[id].fresh = true
	}
}

// happened has the tasks be looked at that an event is of.
func (l *listener) happened(e background.Event) {
	switch {
	case e.Kind == background.EventMissed:
		l.look(l.quiet())
	case e.Run != nil && l.tasks[e.Run.ID] != nil:
		l.tasks[e.Run.ID].fresh = true
	}
}

// tellFresh tells what is new of tasks. Its error is that the client is gone.
func (a *api) tellFresh(ctx context.Context, l *listener) error {
	for _, id := range slices.Sorted(maps.Keys(l.tasks)) {
		if !l.tasks[id].fresh {
			continue
		}
		if ctx.Err() != nil { // who has canceled hears no more
			return errUntold
		}
		t, err := a.taskNow(ctx, l.who, id)
		if gone, ok := errors.AsType[*jsonrpc.Error](err); ok && gone.Code == jsonrpc.CodeInvalidParams {
			delete(l.tasks, id) // its time is over
		}
		if err == nil {
			err = a.tellTask(ctx, l, t)
		}
		if errors.Is(err, errUntold) {
			return err
		}
	}
	return nil
}

// errUntold is that a client does not take what it is sent.
var errUntold = errors.New("the client is gone")

// tellTask tells how a task is, if that is news, and no more once it has ended.
func (a *api) tellTask(ctx context.Context, l *listener, t *task) error {
	now := heard{status: t.Status, message: t.StatusMessage, questions: slices.Sorted(maps.Keys(t.InputRequests))}
	now.fresh = t.Status == taskInputRequired // nothing tells that the user has answered
	if before := l.tasks[t.TaskID]; !now.same(*before) {
		t.SetMeta(mcp.Meta{mcp.MetaKeySubscriptionID: l.id})
		if err := l.send(methodTasks, t); err != nil {
			return fmt.Errorf("%w: %w", errUntold, err)
		}
	}
	l.tasks[t.TaskID] = &now
	if t.Status.terminal() {
		a.shown(ctx, l.who, t)
		delete(l.tasks, t.TaskID)
	}
	return nil
}

func (h heard) same(as heard) bool {
	return h.status == as.status && h.message == as.message && slices.Equal(h.questions, as.questions)
}
