package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	methodAcknowledged = "notifications/subscriptions/acknowledged"
	methodTasks        = "notifications/tasks"

	maxWatched    = 64          // tasks of one subscription
	watchInterval = time.Second // time between two notifications about a task
)

// listener is a subscriptions/listen request. The SDK answers it, but does not know
// tasks: their notifications bypass it.
type listener struct {
	api       *api
	who       caller
	id        any               // id of the subscription, once the SDK has acknowledged it
	tasks     map[string]string // last state sent of each task that has not ended, by the task's id
	refused   error
	notifying sync.WaitGroup
}

type listenerKey struct{}

// listen answers a subscription once the SDK has nothing more to send and the tasks have
// ended. The subscription ends when the token it was made with expires. For the
// surrounding code it is a request like any other, which may be completed.
func (a *api) listen(ctx context.Context, req *mcp.SubscriptionsListenRequest, next mcp.MethodHandler) (mcp.Result, error) {
	l := &listener{api: a, who: callerOf(req), tasks: map[string]string{}}
	if !l.who.Until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, l.who.Until)
		defer cancel()
	}

	result, err := next(context.WithValue(ctx, listenerKey{}, l), methodListen, req)
	l.notifying.Wait()
	if l.refused != nil {
		return nil, l.refused
	}
	return result, err
}

// acknowledge replaces the SDK's acknowledgment of a subscription by one that names its
// tasks. Without tasks, it keeps the SDK's.
func (l *listener) acknowledge(ctx context.Context, agreed *mcp.SubscriptionsAcknowledgedParams, sendSDKs func() error) error {
	l.id = agreed.Meta[mcp.MetaKeySubscriptionID]
	if l.refused = l.findTasks(ctx); l.refused != nil {
		return l.refused
	}
	if len(l.tasks) == 0 {
		return sendSDKs()
	}

	type notifications struct {
		mcp.NotificationSubscriptions
		TaskIDs []string `json:"taskIds"`
	}
	err := l.send(methodAcknowledged, map[string]any{
		"_meta": agreed.Meta, "notifications": notifications{agreed.Notifications, slices.Sorted(maps.Keys(l.tasks))},
	})
	if err != nil {
		return err
	}
	l.notifying.Go(func() {
		defer func() { // see guard
			if v := recover(); v != nil {
				l.api.log.Error("subscription panicked", "panic", v, "stack", string(debug.Stack()))
			}
		}()
		l.watchTasks(ctx)
	})
	return nil
}

// findTasks looks up the tasks of a subscription in its session. Its error is for the client.
func (l *listener) findTasks(ctx context.Context) error {
	if l.who.send == nil || len(l.who.taskIDs) == 0 {
		return nil
	}
	if !l.who.tasks {
		return missingTasks()
	}

	for _, id := range l.who.taskIDs {
		_, err := l.api.service.Session(l.who.Session).Run(ctx, id)
		switch {
		case err == nil:
			l.tasks[id] = ""
		case server.ReasonOf(err).Code != wire.CodeNotFound:
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
	return l.who.send(message)
}

// watchTasks sends the state of tasks and each change, until they have ended or ctx is
// done. It polls, because no event says that a user has answered.
func (l *listener) watchTasks(ctx context.Context) {
	for l.notify(ctx) == nil && len(l.tasks) > 0 {
		select {
		case <-time.After(watchInterval):
		case <-ctx.Done():
			return
		}
	}
}

// notify sends the states that have changed. An error means that the client is gone.
func (l *listener) notify(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(l.tasks)) {
		if err := ctx.Err(); err != nil { // the client has canceled the subscription
			return err
		}
		t, err := l.api.taskNow(ctx, l.who, id)
		if err != nil && server.ReasonOf(err).Code == wire.CodeNotFound { // the record was removed
			delete(l.tasks, id)
			continue
		}
		if err != nil {
			continue
		}

		now := fmt.Sprintf("%q", append([]string{string(t.Status), t.StatusMessage}, slices.Sorted(maps.Keys(t.InputRequests))...))
		if now != l.tasks[id] {
			t.SetMeta(mcp.Meta{mcp.MetaKeySubscriptionID: l.id})
			if err := l.send(methodTasks, t); err != nil {
				return err
			}
		}
		l.tasks[id] = now
		if t.Status.terminal() {
			l.api.acknowledgeEnd(ctx, t)
			delete(l.tasks, id)
		}
	}
	return nil
}
