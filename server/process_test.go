package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

// A process is an engine in memory as one process uses it, until it dies.
type process struct {
	*memory.Engine
	worker engine.Worker
	dead   bool
}

func newProcess() *process { return &process{Engine: memory.New()} }

func (p *process) Join(ctx context.Context, info engine.WorkerInfo) (w engine.Worker, err error) {
	if p.dead {
		return nil, fmt.Errorf("dead: %w", engine.ErrLocked)
	}
	p.worker, err = p.Engine.Join(ctx, info)
	return p.worker, err
}

// restarted returns the configuration of a process that is started after that of
// cfg has died.
func restarted(cfg Config) Config {
	p := cfg.Engine.(*process)
	p.dead = true
	if err := p.worker.Leave(context.Background()); err != nil {
		panic(err)
	}
	cfg.Engine = &process{Engine: p.Engine}
	return cfg
}

// whole adds the payload to a run.
func (s service) whole(run engine.Run) engine.Run {
	s.t.Helper()
	for part, to := range map[engine.Part]*json.RawMessage{engine.PartArgs: &run.Args, engine.PartResult: &run.Result, engine.PartContent: &run.Content} {
		data, err := s.runs.Payload(s.t.Context(), run.Session, run.ID, part)
		require.NoError(s.t, err)
		*to = data
	}
	return run
}
