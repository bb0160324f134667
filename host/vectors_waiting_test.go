package host_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// wait runs a vector of a plugin that waits: in one instance, and continued in a new one
// at each wait. It returns how many instances that has taken.
func (v vector) wait(t *testing.T, wasm []byte) (instances int) {
	for _, continued := range []bool{false, true} {
		if len(v.Host.Lost) > 0 && !continued {
			continue // a call is lost to one that continues
		}
		name := v.Name
		if continued {
			name += ", continued"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				h := newHost(t, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
				m := compile(t, h, wasm)
				r := relay{once: true}
				req := v.waiting(&r)
				if continued {
					v.check(t, r.do(t.Context(), req, func() (*host.Host, *host.Module) { return h, m }), logs(t, "vectors", log.Bytes()))
					require.Equal(t, len(v.Host.Lost) > 0, r.died > 0)
					instances = r.instances
					return
				}
				v.check(t, do(t.Context(), h, m, req), logs(t, "vectors", log.Bytes()))
			})
		})
	}
	return instances
}

// waiting is the call that a vector asks for, of a relay.
func (v vector) waiting(r *relay) host.Call {
	req := v.call("vectors")
	req.Policy.Timeout = 10_000 * time.Hour
	if after := v.Host.StopAfterMS; after > 0 {
		stop := make(chan struct{})
		req.Stopping = stop
		time.AfterFunc(time.Duration(after)*time.Millisecond, func() { close(stop) })
	}

	var together sync.WaitGroup
	together.Add(v.Host.Together)
	req.CallTool = func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
		if slices.Contains(v.Host.Lost, t.Tool) {
			r.kill()
			<-ctx.Done()
			return abi.Result{Kind: abi.CanceledKind}, nil
		}
		if v.Host.Together > 0 {
			together.Done()
			together.Wait()
		}
		return v.Host.Tools[t.Tool], nil
	}
	return req
}
