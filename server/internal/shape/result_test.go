package shape

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

func failed(kind engine.ErrorKind, message string) engine.Run {
	run := engine.Run{Status: engine.StatusFailed}
	run.Error = &engine.RunError{Kind: kind, Message: message}
	return run
}

// The record of a run has why a call failed, and gives back the kind of its result.
func TestErrorKind(t *testing.T) {
	for want, c := range map[wire.ErrorKind]struct {
		end  abi.Result // of the call
		err  error
		kind abi.Kind // of the result from the record
	}{
		wire.KindToolError:          {abi.Result{Kind: abi.ToolError}, nil, abi.ToolError},
		wire.KindConnectionRequired: {abi.Result{Kind: abi.ConnectionRequired}, errors.New("no secret"), abi.ConnectionRequired},
		wire.KindRejected:           {abi.Result{Kind: abi.ToolError}, fmt.Errorf("approval: %w", host.ErrDenied), abi.ToolError},
		wire.KindOrphaned:           {abi.Result{Kind: abi.Internal}, host.ErrState, abi.Internal},
		wire.KindTrap:               {abi.Result{Kind: abi.Internal}, host.ErrTrap, abi.Internal},
		wire.KindLimit:              {abi.Result{Kind: abi.ToolError}, host.ErrFiles, abi.Internal},
		wire.KindFuelExhausted:      {abi.Result{Kind: abi.LimitReached, Limit: abi.LimitFuel}, nil, abi.LimitReached},
		wire.KindMemoryLimit:        {abi.Result{Kind: abi.LimitReached, Limit: abi.LimitMemory}, nil, abi.LimitReached},
		wire.KindOutputLimit:        {abi.Result{Kind: abi.LimitReached, Limit: abi.LimitOutput}, nil, abi.LimitReached},
		wire.KindInternal:           {abi.Result{Kind: abi.Internal}, errors.New("a bug"), abi.Internal},
	} {
		require.Equal(t, want, ErrorKind(c.end, c.err))
		r := Result(failed(want, "why"))
		require.Equal(t, []any{c.kind, c.end.Limit}, []any{r.Kind, r.Limit}, want)
		require.Nil(t, r.Value)
	}
	require.Equal(t, wire.KindToolError, ErrorKind(abi.Result{Kind: abi.ToolError}, host.ErrABI), "it cannot be compiled")
}

// A repeated call gets the result of the first one from its record.
func TestResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := engine.Run{Status: engine.StatusSucceeded}
		run.Result, run.Content = json.RawMessage(`1`), json.RawMessage(`[{"type":"text","text":"one"}]`)
		run.Cost, run.Summary, run.OutputBytes = engine.Cost{Fuel: 7, CPU: time.Second}, "It worked.", 3
		r := Result(run)
		require.Equal(t, []any{abi.Success, "1", "It worked.", ""}, []any{r.Kind, string(r.Value), r.Summary, r.Error})
		require.Equal(t, []any{int64(7), time.Second, int64(3)}, []any{r.Usage.Fuel, r.Usage.CPU, r.Usage.OutputBytes})
		require.Equal(t, "one", r.Content[0].Text)

		run.Status = engine.StatusCanceled
		require.Equal(t, []any{abi.CanceledKind, "the call was canceled"}, []any{Result(run).Kind, Result(run).Error})
		run.Cancel = &engine.Cancellation{Reason: "not needed"}
		require.Equal(t, "not needed", Result(run).Error)
		require.Nil(t, Result(run).Value)

		for kind, want := range map[engine.ErrorKind]string{
			engine.KindOrphaned: "gone" + TextUnknown, engine.KindInterrupted: "gone" + TextUnknown, engine.KindRejected: "gone",
		} {
			require.Equal(t, want, Result(failed(kind, "gone")).Error)
		}
	})
}
