// Package calllog keeps and shows the calls within runs: which tools a run has called,
// how long that took, and how it ended.
package calllog

import (
	"context"
	"encoding/json"
	"errors"
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

// A Log lists the calls within a run: the first of them, and the number of the rest.
// Its methods are safe for concurrent use, and do nothing on nil.
type Log struct {
	mu     sync.Mutex
	called wire.InnerCalls
}

type contextKey struct{}

// Of returns the log of the run that a context belongs to, or nil.
func Of(ctx context.Context) *Log {
	l, _ := ctx.Value(contextKey{}).(*Log)
	return l
}

// With returns a context for the work of a run. Calls made with it are stored with the run,
// after the calls from before its suspension.
func With(ctx context.Context, sink *output.Sink, attempt int) context.Context {
	l := resume(sink.Called(), attempt)
	sink.Calls(l.encode)
	return context.WithValue(ctx, contextKey{}, l)
}

// resume returns the log that was stored when the run was suspended, or an empty one if
// there is none. Calls that were open then have lost their outcome, unless they are runs.
func resume(stored []byte, attempt int) *Log {
	l := &Log{}
	if stored != nil && json.Unmarshal(stored, &l.called) != nil {
		l.called = wire.InnerCalls{}
	}
	l.called.Attempt = attempt
	for i := range l.called.Calls {
		if c := &l.called.Calls[i]; c.Open() && c.TaskID == "" {
			c.Error = wire.CallLost
		}
	}
	return l
}

// Begin adds a call. The parameter within is the number of the call that makes it; 0 is the
// run itself. If the call is a run, the parameter run is its id. Begin returns the number of
// the new call, or 0 if the log is full and only counts it.
func (l *Log) Begin(within int, tool, run string) int {
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

// End records how the call with this number ended.
func (l *Log) End(number int, r abi.Result, err error) {
	if l == nil || number == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.called.Calls[number-1]
	c.ElapsedSeconds = shape.Micros(max(0, time.Since(c.At)))
	c.Outcome, c.Error, c.Fuel = r.Kind, errorOf(err), r.Usage.Fuel
}

// EndRun records how the call that is the run with this id ended.
func (l *Log) EndRun(id string, r abi.Result, err error) {
	l.End(l.numberOf(id), r, err)
}

// numberOf returns the number of the call that is this run, or 0.
func (l *Log) numberOf(run string) int {
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
func (l *Log) encode() []byte {
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
