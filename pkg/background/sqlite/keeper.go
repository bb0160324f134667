package sqlite

import (
	"context"
	"time"
)

const storeBeatsEvery = 10 * time.Second

// A keeper does the background work: it stores beats, and checks that the database is
// still there.
type keeper struct {
	engine  *Engine
	closing chan struct{}
	done    chan struct{}
}

func (k *keeper) close() {
	close(k.closing)
	<-k.done
}

func (k *keeper) run() {
	defer close(k.done)
	ctx := context.Background()
	tick := time.NewTicker(storeBeatsEvery)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-tick.C:
		case <-k.closing:
			open = false
		}
		if k.engine.db.look() != nil {
			continue // it was already reported
		}
		if err := k.storeBeats(ctx); err != nil {
			k.engine.log.Warn("heartbeats not stored; trying again", "error", err)
		}
	}
}

// storeBeats stores those beats of running runs that have changed. It skips runs
// that are being changed.
func (k *keeper) storeBeats(ctx context.Context) error {
	g := k.engine.active
	g.mu.Lock()
	var held []*active
	var rows []row
	for _, a := range g.holders {
		if a.changed && a.mu.TryLock() {
			defer a.mu.Unlock()
			a.changed = false
			held = append(held, a)
			rows = append(rows, row{seq: a.seq, stored: stored{Run: a.run}})
		}
	}
	g.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}

	err := k.engine.db.write(ctx, func(w *conn) error {
		for _, r := range rows {
			if err := r.update(w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, a := range held {
			a.changed = true
		}
	}

	return err
}
