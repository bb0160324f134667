package calllog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// maxShown is how many calls of a run and its descendants are shown.
const maxShown = 1000

// A Reader reads the logs of runs.
type Reader struct {
	Find    func(ctx context.Context, id string) (engine.Run, error)
	Payload func(ctx context.Context, session, id string, part engine.Part) (json.RawMessage, error)
}

// Tree returns the calls within a run, each after its caller, including the calls within
// calls that are runs. It returns at most maxShown calls, and the number of the rest.
func (r Reader) Tree(ctx context.Context, id string) (wire.InnerCalls, error) {
	run, err := r.Find(ctx, id)
	if err != nil {
		return wire.InnerCalls{}, err
	}
	called, err := r.called(ctx, run)
	t := tree{reader: r, all: wire.InnerCalls{Attempt: called.Attempt, Calls: []wire.InnerCall{}}}
	if err == nil {
		err = t.add(ctx, called, 0, 0, 0)
	}
	return t.all, err
}

// called returns the calls stored with a run.
func (r Reader) called(ctx context.Context, run engine.Run) (called wire.InnerCalls, err error) {
	data, err := r.Payload(ctx, run.Session, run.ID, engine.PartCalls)
	if err != nil || data == nil {
		return called, err
	}
	if err := json.Unmarshal(data, &called); err != nil {
		return called, fmt.Errorf("reading the calls of %s: %w", run.ID, err)
	}

	for i := range called.Calls {
		c := &called.Calls[i]
		switch {
		case !c.Open():
		case run.Status.Terminal():
			c.Error, c.ElapsedSeconds = wire.CallLost, shape.Micros(max(0, run.FinishedAt.Sub(c.At)))
		default:
			c.ElapsedSeconds = shape.Micros(max(0, time.Since(c.At)))
		}
	}
	return called, nil
}

// A tree collects the calls of a run and of the runs below it, each after its caller.
type tree struct {
	reader Reader
	all    wire.InnerCalls
}

// add adds the calls that a run made within its call number from. In the tree, that call has
// the number within, and is at the given depth.
func (t *tree) add(ctx context.Context, called wire.InnerCalls, from, within, depth int) error {
	if from == 0 {
		t.all.More += called.More
	}

	for _, c := range called.Calls {
		if c.Within != from || c.Number <= from { // the latter are damaged
			continue
		}
		if len(t.all.Calls) >= maxShown {
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
func (t *tree) addRun(ctx context.Context, c wire.InnerCall) error {
	if c.TaskID == "" || c.Depth >= abi.MaxToolDepth {
		return nil
	}
	run, err := t.reader.Find(ctx, c.TaskID)
	if errors.Is(err, engine.ErrNotFound) { // it was removed
		return nil
	}
	if err != nil {
		return err
	}
	called, err := t.reader.called(ctx, run)
	if err != nil {
		return err
	}
	return t.add(ctx, called, 0, c.Number, c.Depth)
}
