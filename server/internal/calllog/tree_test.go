package calllog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// stored are the logs of runs.
type stored map[string]struct {
	run    engine.Run
	called wire.InnerCalls
	err    error // of reading the log
}

func (s stored) reader() Reader {
	return Reader{
		Find: func(_ context.Context, id string) (engine.Run, error) {
			one, ok := s[id]
			if !ok {
				return engine.Run{}, engine.ErrNotFound
			}
			one.run.ID = id
			return one.run, nil
		},
		Payload: func(_ context.Context, _, id string, part engine.Part) (json.RawMessage, error) {
			if part != engine.PartCalls {
				return nil, errors.New("not the calls")
			}
			data, err := json.Marshal(s[id].called)
			return data, errors.Join(s[id].err, err)
		},
	}
}

func called(calls ...wire.InnerCall) wire.InnerCalls {
	for i := range calls {
		if calls[i].Number == 0 {
			calls[i].Number = i + 1
		}
	}
	return wire.InnerCalls{Attempt: 1, Calls: calls}
}

// A call that is a run is followed by the calls within that run. Runs that were removed
// have none.
func TestTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		time.Sleep(time.Minute)
		failed := engine.Run{Status: engine.StatusFailed}
		failed.FinishedAt = began.Add(time.Second)
		all := stored{
			"top": {run: engine.Run{Status: engine.StatusRunning}, called: called(
				wire.InnerCall{Tool: "exec", Outcome: abi.Success},
				wire.InnerCall{Tool: "send", TaskID: "child", Outcome: abi.Success},
				wire.InnerCall{Tool: "count", Within: 1, Outcome: abi.Success},
				wire.InnerCall{Tool: "gone", TaskID: "removed", Outcome: abi.Success},
				wire.InnerCall{Tool: "open", At: began},
			)},
			"child": {run: failed, called: called(wire.InnerCall{Tool: "cut off", At: began})},
		}
		tree, err := all.reader().Tree(t.Context(), "top")
		require.NoError(t, err)
		require.Equal(t, []string{
			"1 in 0 at 1: exec 0s success",
			"2 in 1 at 2: count 0s success",
			"3 in 0 at 1: send 0s success child",
			"4 in 3 at 2: cut off 1s lost",
			"5 in 0 at 1: gone 0s success removed",
			"6 in 0 at 1: open 60s",
		}, lines(tree))

		_, err = all.reader().Tree(t.Context(), "removed")
		require.ErrorIs(t, err, engine.ErrNotFound)
	})
}

// A stored log that is damaged, or that names its own run, ends the tree and not the host.
func TestDamagedLogs(t *testing.T) {
	unread := errors.New("disk")
	many := make([]wire.InnerCall, 150)
	for i := range many {
		many[i] = wire.InnerCall{Tool: "count", Outcome: abi.Success}
	}
	wide := stored{"top": {}}
	top := wide["top"]
	for i := range 20 {
		id := fmt.Sprint("child", i)
		top.called.Calls = append(top.called.Calls, wire.InnerCall{Number: i + 1, Tool: "exec", TaskID: id, Outcome: abi.Success})
		wide[id] = stored{"": {called: called(many...)}}[""]
	}
	wide["top"] = top

	for name, c := range map[string]struct {
		all     stored
		listed  int
		more    bool
		problem error
	}{
		"within itself":  {stored{"top": {called: called(wire.InnerCall{Number: 1, Within: 1})}}, 0, false, nil},
		"backwards":      {stored{"top": {called: called(wire.InnerCall{Number: 2}, wire.InnerCall{Number: 1, Within: 2})}}, 1, false, nil},
		"its own run":    {stored{"top": {called: called(wire.InnerCall{TaskID: "top"})}}, abi.MaxToolDepth, false, nil},
		"not read":       {stored{"top": {err: unread}}, 0, false, unread},
		"child not read": {stored{"top": {called: called(wire.InnerCall{TaskID: "child"})}, "child": {err: unread}}, 1, false, unread},
		"too many":       {wide, maxShown, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tree, err := c.all.reader().Tree(t.Context(), "top")
			require.ErrorIs(t, err, c.problem)
			require.Len(t, tree.Calls, c.listed)
			require.Equal(t, c.more, tree.More > 0)
		})
	}

	text := stored{"top": {}}.reader()
	text.Payload = func(context.Context, string, string, engine.Part) (json.RawMessage, error) {
		return json.RawMessage("{"), nil
	}
	_, err := text.Tree(t.Context(), "top")
	require.ErrorContains(t, err, "reading the calls of top")
}
