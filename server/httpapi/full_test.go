package httpapi_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	memengine "github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// A fullDisk is an engine that stores no run while its disk is full.
type fullDisk struct {
	*memengine.Engine
	full atomic.Bool
}

type fullWorker struct {
	engine.Worker
	disk *fullDisk
}

func (e *fullDisk) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return fullWorker{w, e}, err
}

func (e *fullDisk) Check(context.Context) error {
	if e.full.Load() {
		return engine.ErrFull
	}
	return nil
}

func (w fullWorker) Submit(ctx context.Context, run engine.Run, permits *engine.Permits) error {
	if err := w.disk.Check(ctx); err != nil {
		return err
	}
	return w.Worker.Submit(ctx, run, permits)
}

// TestFullDisk: a server whose disk is full is not ready, and says why. A client is told
// that nothing can be stored at the moment.
func TestFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		disk := &fullDisk{Engine: memengine.New()}
		f := serveOn(t, disk, httpapi.Config{}, "echo")
		disk.full.Store(true)
		p := f.refused("GET", "/readyz", "")
		require.Equal(t, http.StatusInternalServerError, p.Status)
		require.Contains(t, p.Detail, "the disk is full: no run, message, value or decision can be stored")
		p = f.refused("POST", "/v1/runs", `{"tool":"echo"}`)
		require.Equal(t, http.StatusServiceUnavailable, p.Status)
		require.Equal(t, wire.CodeUnavailable, p.Code)
		require.Contains(t, p.Detail, "the disk of the server is full, so nothing can be stored")
		disk.full.Store(false)
		require.Equal(t, "ready", f.ask("GET", "/readyz", "")["status"])
	})
}
