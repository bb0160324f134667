// Package background runs functions in the background, keeps the beginning and the end of
// their output, and records how they ended.
//
// A [Manager] has one [Executor], the function that does the work of a run. [Manager.Spawn]
// stores an [engine.Run] and returns at once with its id; [Manager.Check] reports on it and
// can wait for its end, [Manager.List] lists it, and [Manager.Stop] stops it. Every run
// belongs to a session, and a session sees only its own runs: the id of another session's run,
// an id that never existed and an id whose record is gone all get the same answer.
//
//	m, err := background.New(ctx, background.Config{Executor: execute})
//	…
//	spawned, err := m.Spawn(ctx, "session-1", background.SpawnRequest{Tool: "primes"})
//
// A run begins in one of three ways: with a spawn; with a call of [Manager.Run] that took
// longer than its caller waits, and so was parked; or with the firing of an [engine.Schedule].
// Afterwards all runs behave the same.
//
//	spawn, firing                parked call
//	     |  +--- requeued, attempt+1 ---+  |
//	     v  v   (its host went down)    |  v
//	    queued ------- claim -------> running --complete--> succeeded | failed(kind) | canceled
//	       |
//	       +--cancel, or refused before the start--> canceled | failed(rejected)
//
// A run becomes canceled only after its work has ended, and only if the work gave no result.
// The first terminal write wins, and every write names the attempt that made it, so that a
// worker that lost its run cannot change it.
//
// Spawns and parked calls need a slot of this process and permits, which the engine counts
// across all workers; without these they are refused. Runs of schedules, and runs that a dead
// worker left behind, wait in the engine's queue.
//
// A stop closes [output.Sink.Stopping] first. After the grace period, or at once if it is
// forced, it cancels the run's context, as do the run's deadline and closing the manager. An
// executor must return soon after that: Go cannot kill a function.
//
// If a run is to signal its end, the end is stored together with a notice. The notice is
// passed to [Config.OnNotice], and [Manager.Pending] returns it until it is acknowledged or
// the session's agent has seen the end.
//
// Work that waits for hours returns a [Suspension] in its [Outcome]: the run keeps its
// state in the engine, and holds no slot and no permit until what it waits for happens.
// Then the executor is called again, see [StateOf], in this process or in a later one.
//
// A Manager is a worker of its engine and renews its lease with a heartbeat. The
// runs of a worker that died are taken over by the others, or by the next [New]:
// they are run again with the last [output.Sink.Checkpoint] if [Config.Readmit]
// admits them, and otherwise end as failed with [engine.KindOrphaned].
//
// Runs end even when the engine cannot store the end: callers learn that it is
// unsaved, and it is stored as soon as the engine works again.
package background
