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
)

// slowToJoin is an engine that answers the first heartbeat of a worker late, so that runs are
// claimed long before the manager of runs is there.
type slowToJoin struct{ *memory.Engine }

func (e slowToJoin) Join(ctx context.Context, w engine.WorkerInfo) (engine.Worker, error) {
	joined, err := e.Engine.Join(ctx, w)
	return slowToRenew{joined}, err
}

type slowToRenew struct{ engine.Worker }

func (w slowToRenew) Renew(ctx context.Context, held map[string]engine.Beat) (engine.Renewal, error) {
	time.Sleep(time.Second)
	return w.Worker.Renew(ctx, held)
}

// A run that an earlier process left may call a tool whose call is held, before Open has
// returned.
func TestRunsBeforeOpenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wiped []string
		clean := cleaner
		clean.Hints = abi.Hints{SupportsBackground: true}
		e := slowToJoin{memory.New()}
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
		waiting, err := ApprovalsOf(second.Service).waiting(t.Context(), alice)
		require.NoError(t, err)
		require.Len(t, waiting, 1, "%+v", second.run(id))
		require.Equal(t, "wipe", waiting[0].Tool)
	})
}
