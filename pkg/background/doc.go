// Package background runs functions in the background, keeps both ends of
// their output, and remembers how they ended.
//
// A [Manager] is built around one [Executor], the function that does the work
// of a run. [Manager.Spawn] stores an [engine.Run] and returns at once with its id;
// [Manager.Check], [Manager.Wait], [Manager.List] and [Manager.Stop] show it,
// wait for it and end it. Every run belongs to a session, and a session
// sees only its own runs: the id of another session's run, an id that never
// existed and an id whose record is gone are answered alike.
//
//	m, err := background.New(ctx, background.Config{Executor: execute})
//	…
//	spawned, err := m.Spawn(ctx, "session-1", background.SpawnRequest{Tool: "primes"})
//	…
//	stopped, err := m.Stop(ctx, "session-1", spawned.ID, background.StopRequest{})
//
// Runs begin in three ways, and are the same thing afterwards: a spawn; a
// call made with [Manager.Run] that took longer than its caller waits and was
// parked; and the firing of an [engine.Schedule].
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
// # Limits
//
// A process has slots for 64 active runs. A session may have 5 of them, and 32
// parked calls, over all workers. A spawn without a slot or a permit is refused,
// and nothing is stored. Runs of schedules, and those that a dead worker left,
// wait in the queue that all workers share, and start in the order they came. A
// slot is given back after the end of its run is stored.
//
// # Two clocks, two signals
//
// A stop is first a request: [output.Sink.Stopping] is closed, and the work may end
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
// session's agent is shown by a check or a stop is not announced again.
//
// # When a worker dies
//
// A Manager is a worker of its engine and renews its lease with a heartbeat. The
// runs of a worker that died, such as an earlier process, are taken over by the
// others, or by the next [New]: they are run again if [Config.Readmit] admits
// them, with the last [output.Sink.Checkpoint], and end as failed with
// [engine.KindOrphaned] if not. A worker whose lease has ended stops its work and
// joins again. Nothing stays running for ever, and no run is executed twice
// unless it was admitted again.
//
// # What is stored where
//
// Records, logs and artifacts live in an [engine.Engine]: package engine has its
// contract, memory one without a disk, which is the default, and sqlite one that
// outlives the process. The output of a running run is read from its sink, and
// stored as it comes. When an engine cannot store, runs end nevertheless: callers
// learn that the end is unsaved, and it is stored as soon as that works.
package background
