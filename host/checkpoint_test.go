package host_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// ask calls a capability, tells its code, and answers with its response.
func ask(name, request string) guest {
	n, size := int64(len(name)), int64(len(request))
	return guest{data: name + request, invoke: seq(
		tell(capability(dataAt, n, dataAt+n, size)), set(0, read(abi.FieldResponse, dataAt, 4096)),
		i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite), op(wasmbin.OpDrop), i32(0),
	)}
}

func TestCheckpoint(t *testing.T) {
	kept := []byte("half-way")
	keep := func(err error) *host.Checkpoint {
		return &host.Checkpoint{Load: func() []byte { return kept }, Save: func(_ context.Context, data []byte) error {
			if err == nil {
				kept = data
			}
			return err
		}}
	}
	const denied = `{"code":"denied","message":"only a background run has checkpoints: this call is not run again"}`
	for _, c := range []struct {
		name, op, request string
		checkpoint        *host.Checkpoint
		code              int32
		response          string
		kept              string
	}{
		{"load", "checkpoint.load", `{}`, keep(nil), 23, `{"data":"aGFsZi13YXk="}`, "half-way"},
		{"load, whatever is asked", "checkpoint.load", "\xff", keep(nil), 23, `{"data":"aGFsZi13YXk="}`, "half-way"},
		{"the disk is full", "checkpoint.save", `{"data":"eA=="}`, keep(errors.New("no space on /secret")), abi.CallFailed, `{"code":"failed","message":"the checkpoint could not be stored"}`, "half-way"},
		{"not a run yet", "checkpoint.save", `{"data":"eA=="}`, keep(fmt.Errorf("%w: not parked", host.ErrDenied)), abi.CallDenied, denied, "half-way"},
		{"no run", "checkpoint.save", `{"data":"eA=="}`, nil, abi.CallDenied, denied, "half-way"},
		{"no run to load from", "checkpoint.load", `{}`, nil, abi.CallDenied, denied, "half-way"},
		{"not base64", "checkpoint.save", `{"data":"?"}`, keep(nil), abi.CallInvalid, `{"code":"invalid","message":"expected {\"data\": base64}"}`, "half-way"},
		{"not JSON", "checkpoint.save", `x`, keep(nil), abi.CallInvalid, `{"code":"invalid","message":"expected {\"data\": base64}"}`, "half-way"},
		{"save", "checkpoint.save", `{"data":"ZG9uZQ=="}`, keep(nil), 2, `{}`, "done"},
		{"save nothing", "checkpoint.save", `{}`, keep(nil), 2, `{}`, ""},
		{"load nothing", "checkpoint.load", `{}`, keep(nil), 2, `{}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, ask(c.op, c.request), host.Call{Services: host.Services{Checkpoint: c.checkpoint}})
			require.NoError(t, o.err)
			require.Equal(t, []int32{c.code}, o.codes())
			require.JSONEq(t, c.response, string(o.Value))
			require.Equal(t, c.kept, string(kept))
		})
	}
}

// A stop ends a save that waits for its storage.
func TestCheckpointThatWaitsIsStopped(t *testing.T) {
	stop := make(chan struct{})
	checkpoint := &host.Checkpoint{Save: func(ctx context.Context, _ []byte) error {
		close(stop)
		<-ctx.Done()
		return errors.New("the disk is full")
	}}
	o := run(t, ask("checkpoint.save", `{"data":"eA=="}`), host.Call{Stopping: stop, Services: host.Services{Checkpoint: checkpoint}})
	require.NoError(t, o.err)
	require.Equal(t, []int32{abi.CallCanceled}, o.codes())
}

// Saving is bounded in size, and paid for in fuel: a guest cannot keep the
// disk busy for nothing.
func TestCheckpointIsBounded(t *testing.T) {
	saved := 0
	checkpoint := &host.Checkpoint{Save: func(context.Context, []byte) error { saved++; return nil }}
	save := func(size int) outcome {
		data := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", size)))
		g := ask("checkpoint.save", `{"data":"`+data+`"}`)
		g.change = func(m *wasmbin.Module) { m.Memories[0].Min = 64 }
		return run(t, g, host.Call{Services: host.Services{Checkpoint: checkpoint}})
	}
	require.Equal(t, []int32{2}, save(host.MaxCheckpoint).codes())
	require.Equal(t, 1, saved)
	for _, size := range []int{host.MaxCheckpoint + 1, 2 * host.MaxCheckpoint} {
		o := save(size)
		require.Equal(t, []int32{abi.CallLimit}, o.codes())
		require.JSONEq(t, `{"code":"limit","message":"a checkpoint has at most 1048576 bytes"}`, string(o.Value))
	}
	require.Equal(t, 1, saved)

	n := int64(len("checkpoint.save"))
	o := run(t, guest{data: `checkpoint.save{}`, invoke: seq(forever(drop(capability(dataAt, n, dataAt+n, 2))), i32(0))},
		host.Call{Services: host.Services{Checkpoint: checkpoint}, Policy: host.Policy{Fuel: 10_000_000}})
	require.ErrorIs(t, o.err, host.ErrFuel)
	require.InDelta(t, 10, saved, 2)
}
