package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// A callLog lists the calls within a run: the first of them, and the number of the rest.
// Its methods are safe for concurrent use, and do nothing on nil.
type callLog struct {
	mu     sync.Mutex
	called wire.InnerCalls
}

type callLogKey struct{}

// callLogOf returns the log of the run that the context belongs to, or nil.
func callLogOf(ctx context.Context) *callLog {
	l, _ := ctx.Value(callLogKey{}).(*callLog)
	return l
}

// withCallLog returns a context for the work of a run. Calls made with it are stored with
// the run, after those from before its suspension.
func withCallLog(ctx context.Context, sink *output.Sink, attempt int) context.Context {
	l := &callLog{}
	if before := sink.Called(); before != nil && json.Unmarshal(before, &l.called) != nil {
		l.called = wire.InnerCalls{}
	}
	l.called.Attempt = attempt
	for i := range l.called.Calls {
		if c := &l.called.Calls[i]; c.Open() && c.TaskID == "" {
			c.Error = wire.CallLost
		}
	}
	sink.Calls(l.encode)
	return context.WithValue(ctx, callLogKey{}, l)
}

// begin adds a call made within the call of that number; 0 is the run itself. It returns
// the new call's number, or 0 if it is only counted. If the call is a run, run is its id.
func (l *callLog) begin(within int, tool, run string) int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.called.Calls) >= wire.MaxInnerCalls || within > len(l.called.Calls) {
		l.called.More++
		return 0
	}

	c := wire.InnerCall{
		Number: len(l.called.Calls) + 1, Within: within, Depth: 1, Tool: reason.Clip(tool, abi.MaxAgentName), TaskID: run,
		At: time.Now().UTC().Truncate(time.Microsecond),
	}
	if within > 0 {
		c.Depth += l.called.Calls[within-1].Depth
	}
	l.called.Calls = append(l.called.Calls, c)
	return c.Number
}

// end records how the call with a number ended.
func (l *callLog) end(number int, r abi.Result, err error) {
	if l == nil || number == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.called.Calls[number-1]
	c.ElapsedSeconds = shape.Micros(max(0, time.Since(c.At)))
	c.Outcome, c.Error, c.Fuel = r.Kind, errorOf(err), r.Usage.Fuel
}

// endRun records how the call that is a run ended.
func (l *callLog) endRun(id string, r abi.Result, err error) {
	l.end(l.numberOf(id), r, err)
}

// numberOf returns the number of the call that is that run, or 0.
func (l *callLog) numberOf(run string) int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.called.Calls {
		if c.TaskID == run {
			return c.Number
		}
	}
	return 0
}

// errorOf describes why a call had no result.
func errorOf(err error) string {
	refused, ok := errors.AsType[*host.Refusal](err)
	switch {
	case err == nil:
		return ""
	case !ok:
		return string(reason.Of(err).Code)
	case refused.Code == abi.CallLost:
		return wire.CallLost
	case refused.Code == abi.CallLimit:
		return string(wire.CodeLimit)
	case refused.Code == abi.CallDenied:
		return string(wire.CodeDenied)
	}
	return string(wire.CodeInternal)
}

// encode returns the log as it is stored. It is nil if there was no call, and no log of
// an earlier attempt to replace.
func (l *callLog) encode() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.called.Calls) == 0 && l.called.More == 0 && l.called.Attempt <= 1 {
		return nil
	}

	kept := l.called
	data, err := json.Marshal(kept)
	for err == nil && len(data) > engine.MaxCalls { // names that JSON escapes
		half := len(kept.Calls) / 2
		kept.More += len(kept.Calls) - half
		kept.Calls = kept.Calls[:half]
		data, err = json.Marshal(kept)
	}
	if err != nil {
		return nil
	}
	return data
}

// maxShownCalls is how many calls of a run and its descendants are shown.
const maxShownCalls = 1000

// Calls returns the calls made by the tool of a run, directly and through other tools,
// including calls that were runs of their own: of each run the first [wire.MaxInnerCalls]
// calls of its last attempt, and 1,000 in all. It is for people, not for models.
func (v Session) Calls(ctx context.Context, id string) (wire.InnerCalls, error) {
	r, err := v.record(ctx, id)
	if err != nil {
		return wire.InnerCalls{}, err
	}
	called, err := v.called(ctx, r)
	tree := callTree{session: v, all: wire.InnerCalls{Attempt: called.Attempt, Calls: []wire.InnerCall{}}}
	if err == nil {
		err = tree.add(ctx, called, 0, 0, 0)
	}
	return tree.all, err
}

// called returns the calls stored with a run.
func (v Session) called(ctx context.Context, r engine.Run) (called wire.InnerCalls, err error) {
	data, err := v.service.runs.Payload(ctx, r.Session, r.ID, engine.PartCalls)
	if err != nil || data == nil {
		return called, err
	}
	if err := json.Unmarshal(data, &called); err != nil {
		return called, fmt.Errorf("reading the calls of %s: %w", r.ID, err)
	}

	for i := range called.Calls {
		c := &called.Calls[i]
		switch {
		case !c.Open():
		case r.Status.Terminal():
			c.Error, c.ElapsedSeconds = wire.CallLost, shape.Micros(max(0, r.FinishedAt.Sub(c.At)))
		default:
			c.ElapsedSeconds = shape.Micros(max(0, time.Since(c.At)))
		}
	}
	return called, nil
}

// A callTree collects the calls of a run and of the runs below it, each after its caller.
type callTree struct {
	session Session
	all     wire.InnerCalls
}

// add adds the calls that a run made within its call from. In the tree, that call has the
// number within, and the depth.
func (t *callTree) add(ctx context.Context, called wire.InnerCalls, from, within, depth int) error {
	if from == 0 {
		t.all.More += called.More
	}

	for _, c := range called.Calls {
		if c.Within != from || c.Number <= from { // the latter are damaged
			continue
		}
		if len(t.all.Calls) >= maxShownCalls {
			t.all.More++
			continue
		}

		number := len(t.all.Calls) + 1
		own := c.Number
		c.Number, c.Within, c.Depth = number, within, depth+1
		t.all.Calls = append(t.all.Calls, c)
		if err := t.add(ctx, called, own, number, depth+1); err != nil {
			return err
		}
		if err := t.addRun(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// addRun adds the calls within a call that is a run.
func (t *callTree) addRun(ctx context.Context, c wire.InnerCall) error {
	if c.TaskID == "" || c.Depth >= abi.MaxToolDepth {
		return nil
	}
	r, err := t.session.record(ctx, c.TaskID)
	if errors.Is(err, engine.ErrNotFound) { // it was removed
		return nil
	}
	if err != nil {
		return err
	}
	called, err := t.session.called(ctx, r)
	if err != nil {
		return err
	}
	return t.add(ctx, called, 0, c.Number, c.Depth)
}
