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
// # States
//
//	          +--------- claimed again, attempt+1 (its lease has ended) --------+
//	          v                                                                 |
//	queued --claim--> running --complete--> succeeded | failed(kind) | canceled |
//	   |                 +------------------------------------------------------+
//	   +--cancel before the start--> canceled
//
// succeeded, failed and canceled are terminal and never change. A run becomes
// canceled only after its work has ended, and only if the work gave no result:
// a result that arrived is never lost to a stop. The first terminal write
// wins, and every write carries the attempt it was made by, so that a worker
// that lost its run cannot change it.
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
// # What is stored where
//
// Records and the output of ended runs live in an [Engine]. [MemoryEngine] is
// the default; package enginetest holds what any other engine has to do. The
// output of a running run is served from its [Sink].
package background
