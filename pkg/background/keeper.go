package background

import (
	"cmp"
	"context"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// warnEvery is how often the log warns that ends of runs are not stored.
const warnEvery = time.Minute

// A keeper renews the lease, follows events of the engine, stores ends that could
// not be stored, and removes old records.
type keeper struct {
	*core
	member    *member
	runs      *registry
	admission *admission
	worker    *worker
	notifier  *notifier
	scheduler *scheduler

	warned time.Time // time of the last warning about ends that are not stored; zero if all are

	quit  func()        // ends the keeper
	ended chan struct{} // closed when it has ended
}

// run is the goroutine of the keeper.
func (k *keeper) run(ctx context.Context, events <-chan engine.Event) {
	defer close(k.ended)
	heartbeat := time.NewTicker(k.cfg().heartbeatEvery())
	defer heartbeat.Stop()
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	pruning := make(turn, 1) // pruning may take longer than the lease lasts
	defer pruning.Lock()

	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if ok { // otherwise ctx is done
				k.follow(ctx, e)
			}
		case <-heartbeat.C:
			k.heartbeat(ctx)
		case <-prune.C:
			if pruning.TryLock() {
				go func() {
					defer pruning.Unlock()
					k.prune(ctx)
				}()
			}
		}
	}
}

// follow handles an event of the engine.
func (k *keeper) follow(ctx context.Context, e engine.Event) {
	switch e.Kind {
	case engine.EventQueued:
		if !e.Claimed {
			k.admission.expect(true)
		}
	case engine.EventEnded:
		k.admission.expect(false) // it has returned its permits
		if e.Run.Notice == engine.NoticePending {
			k.notifier.look()
		}
	case engine.EventWaiting:
		if !e.Run.WakeAt.IsZero() {
			k.scheduler.look()
		}
	case engine.EventStopping:
		k.stop(*e.Run)
	case engine.EventMessage:
		if t := k.runs.get(e.Run.ID); t != nil {
			signal(t.mail)
		}
	case engine.EventScheduled:
		k.scheduler.look()
	case engine.EventMissed:
		k.scheduler.look()
		for _, t := range k.runs.all() {
			signal(t.mail)
		}
		k.heartbeat(ctx)
	}
}

// stop asks a run to end, as the engine requests.
func (k *keeper) stop(run engine.Run) {
	if t := k.runs.get(run.ID); t != nil {
		t.requestStop(StopRequest{Force: run.Cancel != nil && run.Cancel.Force}.grace(k.cfg()))
	}
}

// heartbeat renews the lease with the beats of all runs, and handles the
// engine's answer.
func (k *keeper) heartbeat(ctx context.Context) {
	held := make(map[string]engine.Beat)
	tasks := k.runs.all()
	for _, t := range tasks {
		if t.live.Load() {
			held[t.run.ID] = t.sink.Beat()
		}
	}
	news, err := k.member.renew(ctx, held)
	if err != nil {
		return
	}
	k.retry(ctx, tasks)

	if _, err := k.member.reoffer(ctx); err != nil && !fenced(err) && ctx.Err() == nil {
		k.log.Warn("what this host can run was not stored; trying again", "error", err)
	}
	for _, id := range news.Stops {
		run, err := k.engine.Get(ctx, id)
		if err != nil {
			run.ID = id
		}
		k.stop(run)
	}

	for _, id := range news.Strays {
		k.takeStray(ctx, id)
	}
	if news.Orphans {
		if err := k.takeOver(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("runs of a dead worker not taken over; trying again", "error", err)
		}
	}
	if news.Notices {
		k.notifier.look()
	}
	k.admission.renewed(news.Queued)
}

// retry stores what could not be stored before, as long as that does not delay the next
// heartbeat.
func (k *keeper) retry(ctx context.Context, tasks []*task) {
	var failed error
	unstored := 0
	until := time.Now().Add(k.cfg().heartbeatEvery())
	for _, t := range tasks {
		if time.Now().Before(until) {
			failed = cmp.Or(k.worker.retry(ctx, t), failed)
		}
		if t.unsaved.Load() != nil {
			unstored++
		}
	}

	switch {
	case unstored == 0:
		k.warned = time.Time{}
	case failed != nil && time.Since(k.warned) >= warnEvery:
		k.warned = time.Now()
		k.log.Warn("ends of background runs still not stored", "runs", unstored, "error", failed)
	}
}

// takeOver takes over the runs of dead workers.
func (k *keeper) takeOver(ctx context.Context) error {
	const batch = 100
	for {
		runs, err := k.member.worker().Orphans(ctx, batch)
		if err != nil {
			return err
		}

		for _, run := range runs {
			k.worker.recover(ctx, run)
		}
		if len(runs) < batch {
			return nil
		}
	}
}

// takeStray takes over a run that has no task although the engine assigns it to
// this worker: the answer to its start was lost, or taking it over failed.
func (k *keeper) takeStray(ctx context.Context, id string) {
	run, err := k.engine.Get(ctx, id)
	if err == nil && run.Status == engine.StatusRunning && k.runs.get(id) == nil { // otherwise it has just begun, or ended
		k.worker.recover(ctx, run)
	}
}

// abortAll ends all work immediately: its runs belong to another worker now.
func (k *keeper) abortAll() {
	for _, t := range k.runs.all() {
		if t.live.Load() {
			t.cancel(engine.ErrFenced)
		}
	}
}

// ephemeralTTL is how long the values of a session that can never be resumed are kept.
const ephemeralTTL = 24 * time.Hour

// prune removes the records whose retention is over.
func (k *keeper) prune(ctx context.Context) {
	now := time.Now()
	_, err := k.engine.Prune(ctx, engine.Retention{
		Before: now.Add(-k.cfg().Retention), Keep: k.cfg().RetainRuns, Notices: now.Add(-k.cfg().NoticeTTL), Values: now.Add(-k.cfg().NoticeTTL),
		Ephemeral: k.cfg().Ephemeral, EphemeralValues: now.Add(-min(k.cfg().NoticeTTL, ephemeralTTL)),
	})
	if err != nil && ctx.Err() == nil {
		k.log.Warn("background records not pruned", "error", err)
	}
}
