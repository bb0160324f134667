package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// slowToJoin is an engine that answers heartbeats late, so that runs are claimed long before
// the manager of runs is there.
type slowToJoin struct {
	*memory.Engine
	late time.Duration
}

func (e slowToJoin) Join(ctx context.Context, w engine.WorkerInfo) (engine.Worker, error) {
	joined, err := e.Engine.Join(ctx, w)
	return slowToRenew{joined, e.late}, err
}

type slowToRenew struct {
	engine.Worker
	late time.Duration
}

func (w slowToRenew) Renew(ctx context.Context, held map[string]engine.Beat) (engine.Renewal, error) {
	time.Sleep(w.late)
	return w.Worker.Renew(ctx, held)
}

// A run that an earlier process left may call a tool whose call is held, before Open has
// returned.
func TestRunsBeforeOpenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wiped []string
		clean := cleaner
		clean.Hints = abi.Hints{SupportsBackground: true}
		e := slowToJoin{memory.New(), time.Second}
		cfg := Config{
			Engine: e, Tools: []gotool.Tool{clean, wiper(&wiped, "wipe"), wiper(&wiped, "nuke")},
			Approvals: ApprovalPolicy{Ask: true},
		}

		first := openFolder(t, cfg, nil)
		id := first.spawn(alice, "clean", `{}`)
		require.NoError(t, first.Close(done()))
		_, err := e.Release(t.Context(), id) // it was approved
		require.NoError(t, err)

		second := openFolder(t, cfg, nil)
		defer second.Close(done())
		synctest.Wait()
		waiting, err := second.approvals.Waiting(t.Context(), alice)
		require.NoError(t, err)
		require.Len(t, waiting, 1, "%+v", second.run(id))
		require.Equal(t, "wipe", waiting[0].Tool)
	})
}

// One whose time is over by then does not begin.
func TestRunsEndBeforeOpenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := false
		tool := gotool.Tool{Name: "late_tool", Description: "For tests.", Approval: abi.ApprovalRequired, Hints: abi.Hints{SupportsBackground: true}, Handler: gotool.Handle(
			func(context.Context, *gotool.Call, noArguments) (noArguments, error) {
				began = true
				return noArguments{}, nil
			})}
		cfg := Config{Engine: memory.New(), Tools: []gotool.Tool{tool}, Approvals: ApprovalPolicy{Ask: true}}
		first := openFolder(t, cfg, nil)
		run, err := first.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "late_tool", Timeout: 10 * time.Second})
		require.NoError(t, err)
		require.NoError(t, first.Close(done()))
		_, err = cfg.Engine.Release(t.Context(), run.TaskID) // it was approved
		require.NoError(t, err)

		cfg.Engine = slowToJoin{cfg.Engine.(*memory.Engine), 20 * time.Second}
		second := openFolder(t, cfg, nil)
		defer second.Close(done())
		time.Sleep(time.Minute)
		require.Equal(t, wire.KindTimeout, second.run(run.TaskID).Error.Kind)
		require.False(t, began)
	})
}
