// Package background runs functions in the background, keeps both ends of
// their output, and remembers how they ended.
//
// A [Manager] is built around one [Executor], the function that does the work
// of a run. [Manager.Spawn] stores a [Run] and returns at once with its id;
// [Manager.Check], [Manager.Wait], [Manager.List] and [Manager.Stop] look at
// it, wait for it and end it. Every run belongs to a session, and a session
// sees only its own runs: the id of another session's run, an id that never
// existed and an id whose record is gone are answered alike.
//
//	m, err := background.New(ctx, background.Config{Executor: execute})
//	…
//	spawned, err := m.Spawn(ctx, "session-1", background.SpawnRequest{Tool: "primes"})
//	…
//	stopped, err := m.Stop(ctx, "session-1", spawned.ID, background.StopRequest{})
//
// Runs come in by three doors, and are the same thing behind them: a spawn; a
// call made with [Manager.Run] that took longer than its caller waits and was
// parked; and the firing of a [Schedule].
//
// # States
//
//	spawn, firing                parked call
//	     |  +--- requeued, attempt+1 ---+  |
//	     v  v   (its host went down)    |  v
//	    queued ------- claim -------> running --complete--> succeeded | failed(kind) | canceled
//	       |
//	       +--cancel, or refused before the start--> canceled | failed(rejected)
//
// succeeded, failed and canceled are terminal and never change. A run becomes
// canceled only after its work has ended, and only if the work gave no result:
// a result that arrived is never lost to a stop. The first terminal write
// wins, and every write carries the attempt it was made by, so that a worker
// that lost its run cannot change it, and stops.
//
// # Places
//
// A host has places for 64 active runs, a session for 5 of them and for 32
// parked calls. A spawn without a place is refused, and nothing is stored. Runs
// nobody waits for at the door, those of schedules and those an earlier process
// left, are queued, and start in the order they came when a place is free. A
// place is given back after the end of its run is stored.
//
// # Two clocks, two signals
//
// A stop is first a request: [Sink.Stopping] is closed, and the work may end
// in its own way. When the grace has passed, or at once if the stop is forced,
// the context of the run is canceled with the cause [ErrStopped]. The run's
// deadline and the closing of the manager cancel the context too, with the
// causes [context.DeadlineExceeded] and [ErrClosed]. An executor must return
// soon after its context is done: Go cannot kill a function.
//
// # Notices
//
// The end of a run that is to be signaled is stored together with a [Notice].
// It is handed to [Config.OnNotice], and returned by [Manager.Pending] until
// it is acknowledged: at least once, always with the same id. An end that the
// session's agent is shown by a check or a stop is not told again.
//
// # When the host goes down
//
// [New] takes up what an earlier process left: runs that were queued are
// queued, those that were running are run again if [Config.Readmit] says that
// they may, with the last [Sink.Checkpoint], and end as failed with
// [KindOrphaned] if not. Nothing stays running for ever, and no run is executed
// twice without being asked about.
//
// # What is stored where
//
// Records, logs and artifacts live in an [Engine]. [MemoryEngine] is the
// default; package sqlite has one that outlives the process, and package
// enginetest holds what any other engine has to do. The output of a running
// run is served from its [Sink], and stored as it comes. When an engine cannot
// store, runs end all the same: who asks is told the truth, and it is stored
// as soon as that works.
package background
