// Package enginetest checks an implementation of [engine.Engine] against
// its contract.
package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An Option changes what the suite expects of an engine.
type Option func(*store)

// OneWorker is for an engine that takes only one worker at a time: Join returns
// an error matching [engine.ErrLocked] while another worker's lease lasts. Tests
// with two concurrent workers are skipped.
func OneWorker(s *store) { s.single = true }

// Run runs the suite on the engines that open returns, which must be empty.
// Every test runs in a [synctest.Test] bubble, so that time passes instantly;
// open is called inside it.
func Run(t *testing.T, open func(t *testing.T) engine.Engine, options ...Option) {
	run := func(name string, test func(*testing.T, *store)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{Engine: open(t)}
				for _, option := range options {
					option(s)
				}
				s.join(t, engine.WorkerInfo{TTL: forever})
				test(t, s)
			})
		})
	}

	for name, test := range cases {
		run(name, test)
	}

	for name, test := range sharedCases {
		s := &store{}
		for _, option := range options {
			option(s)
		}
		if !s.single {
			run(name, test)
		}
	}
}

// forever is longer than any test.
const forever = 10 * 365 * 24 * time.Hour

// sharedCases are the cases with several concurrent workers.
var sharedCases = map[string]func(*testing.T, *store){
	"one of many workers claims":        claimWorkers,
	"permits over all workers":          permitsWorkers,
	"one of many workers takes over":    orphansRace,
	"claims of a dead worker go back":   deadClaims,
	"events and stops of other workers": eventsOfWorkers,
	"notices of one worker":             noticesWorkers,
	"one of many idempotency keys":      keysWorkers,
	"offers":                            offers,
	"offers change":                     offersChange,
	"versions that runs want":           offersWanted,
	"nobody offers a run":               offersPatience,
	"permits of the queue":              permitsQueue,
}

// cases are the cases for every engine.
var cases = map[string]func(*testing.T, *store){
	"submit and get":                    submitAndGet,
	"submit refuses a second":           submitTwice,
	"one of many submits wins":          submitRace,
	"adopt":                             adopt,
	"list":                              list,
	"list pages":                        listPages,
	"claim":                             claim,
	"one of many claims wins":           claimRace,
	"claim of a stale lease fences":     claimStale,
	"extend":                            extend,
	"requeue":                           requeue,
	"abandon":                           abandon,
	"abandon of a queued run":           abandonQueued,
	"checkpoint":                        checkpoint,
	"a lost lease changes nothing":      fencing,
	"complete is final":                 completeFinal,
	"one of many completes wins":        completeRace,
	"cancel queued":                     cancelQueued,
	"cancel running keeps the first":    cancelRunning,
	"cancel of a requeued run":          cancelRequeued,
	"one of cancel and claim wins":      cancelRace,
	"log":                               logBothEnds,
	"log in pieces":                     logPieces,
	"log cuts no characters":            logCharacters,
	"log of a new attempt is empty":     logNewAttempt,
	"artifacts":                         artifacts,
	"artifacts are of ended runs":       artifactsMissing,
	"notices":                           notices,
	"acknowledge":                       acknowledge,
	"notices come by pages":             pendingPages,
	"prune":                             prune,
	"prune of the same instant":         pruneSameInstant,
	"prune keeps notices":               pruneNotices,
	"prune of schedules":                pruneSchedules,
	"schedules":                         schedules,
	"schedules are compared":            scheduleConflict,
	"one of many changes wins":          scheduleRace,
	"schedules are counted":             scheduleLimit,
	"schedules up to the limit":         scheduleLimitRace,
	"schedules are removed":             scheduleRemoved,
	"one of remove and submit wins":     scheduleRemovedRace,
	"records are counted":               recordsCounted,
	"records make room":                 recordsMakeRoom,
	"records of those who take most go": recordsOfMost,
	"records of one owner":              recordsOfOwner,
	"a full quota":                      recordsFull,
	"one of many finds room":            recordsRace,
	"events":                            events,
	"events of a session":               eventsOfSession,
	"not found":                         notFound,
	"claim in order":                    claimOrder,
	"claims wait for an earlier run":    claimAfter,
	"permits":                           permits,
	"permits of parked calls":           permitsParked,
	"idempotency keys":                  keys,
	"payload":                           payload,
	"reads are light":                   readsAreLight,
	"takeover after the lease":          takeover,
	"takeover after leaving":            leave,
	"costs and diagnoses":               costs,
	"search":                            search,
	"remove":                            removes,
	"a claim that was not started":      claimNotStarted,
	"renew":                             renew,
	"events for a slow watcher":         eventsMissed,
	"one worker at a time":              oneWorker,
	"notices are handed out once":       noticesOnce,
	"due schedules":                     due,
	"children":                          children,
	"children of an active parent":      childrenRefused,
	"children up to the limit":          childrenLimit,
	"values":                            values,
	"values are compared":               valuesConflict,
	"one of many sets wins":             valuesRace,
	"values that are appended":          valuesAppended,
	"values up to the limit":            valuesLimit,
	"values are counted":                valuesCounted,
	"prune of values":                   pruneValues,
	"prune of ephemeral values":         pruneEphemeral,
	"held runs":                         held,
	"waiting":                           waiting,
	"waiting for times":                 waitingTimes,
	"what waiting runs have called":     waitingCalls,
	"attempts that get no further":      waitingIdle,
	"waiting for children":              waitingChildren,
	"waiting for messages":              waitingMessages,
	"states that are held":              waitingHeld,
	"states cut logs":                   waitingLog,
	"stops of waiting runs":             waitingEnds,
	"states that are refused":           waitingRefused,
	"values expire":                     valuesExpire,
	"scopes":                            scopes,
	"messages of a run":                 messages,
	"states of workers":                 workerStates,
}

const outputCap = 64

func newRun(id, session string) engine.Run {
	return engine.Run{
		ID: id, Session: session, Tool: "primes", Args: json.RawMessage(`{"limit":10}`), Title: "Primes",
		Origin: engine.OriginSpawned, SignalOnCompletion: true, Timeout: time.Minute, OutputCap: outputCap,
		CreatedAt: time.Now(), Status: engine.StatusQueued,
	}
}

// A store is an engine and its current worker.
type store struct {
	engine.Engine
	worker engine.Worker
	single bool // see OneWorker
}

// everything permits any number of runs.
var everything engine.Permits

// join gives the store a new worker; the previous one leaves.
func (s *store) join(t *testing.T, info engine.WorkerInfo) {
	t.Helper()
	if s.worker != nil {
		require.NoError(t, s.worker.Leave(t.Context()))
	}
	s.worker = joined(t, s, info)
}

func joined(t *testing.T, s *store, info engine.WorkerInfo) engine.Worker {
	t.Helper()
	w, err := s.Join(t.Context(), info)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Leave(context.Background()) })
	return w
}

// dies lets the lease of the store's worker expire, and gives the store another
// worker. It returns the dead worker.
func (s *store) dies(t *testing.T) (dead engine.Worker) {
	t.Helper()
	dead = s.worker
	info := engine.WorkerInfo{TTL: forever}
	if s.single {
		time.Sleep(engine.DefaultTTL)
		s.worker = joined(t, s, info)
		return dead
	}
	s.worker = joined(t, s, info)
	for range 4 {
		time.Sleep(engine.DefaultTTL / 2)
		_, err := s.worker.Renew(t.Context(), nil)
		require.NoError(t, err)
	}

	return dead
}

// mortal gives the store a worker with a short lease.
func (s *store) mortal(t *testing.T) { s.join(t, engine.WorkerInfo{}) }

// Submit stores a run that the worker has claimed.
func (s *store) Submit(ctx context.Context, run engine.Run) error {
	return s.worker.Submit(ctx, run, &everything)
}

// Start starts a run that the worker has claimed, or that is queued.
func (s *store) Start(ctx context.Context, id string) (engine.Lease, error) {
	l, err := s.worker.Start(ctx, id)
	if errors.Is(err, engine.ErrFenced) {
		if _, err := s.worker.Claim(ctx, 1000, everything); err != nil {
			return nil, err
		}
		l, err = s.worker.Start(ctx, id)
	}
	return l, err
}

func (s *store) Adopt(ctx context.Context, run engine.Run) (engine.Lease, error) {
	return s.worker.Adopt(ctx, run, everything)
}

func (s *store) Requeue(ctx context.Context, id string, attempt int) error {
	return s.worker.Requeue(ctx, id, attempt)
}

func (s *store) Abandon(ctx context.Context, id string, attempt int, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	return s.worker.Abandon(ctx, id, attempt, status, b, end)
}

func (s *store) Cancel(ctx context.Context, id string, c engine.Cancellation) (engine.Run, error) {
	return s.Engine.Cancel(ctx, id, c, engine.End{Summary: "canceled by " + c.By, FinishedAt: c.At})
}

func submit(t *testing.T, e *store, id, session string) {
	t.Helper()
	require.NoError(t, e.Submit(t.Context(), newRun(id, session)))
}

// queue submits a run to the queue that all workers share.
func queue(t *testing.T, e *store, id, session string) {
	t.Helper()
	require.NoError(t, e.worker.Submit(t.Context(), newRun(id, session), nil))
}

func claimUpTo(t *testing.T, w engine.Worker, max int, p engine.Permits) string {
	t.Helper()
	runs, err := w.Claim(t.Context(), max, p)
	require.NoError(t, err)
	for _, r := range runs {
		require.Equal(t, engine.StatusQueued, r.Status)
		require.Nil(t, r.Args)
	}
	return ids(runs)
}

func orphans(t *testing.T, w engine.Worker) string {
	t.Helper()
	runs, err := w.Orphans(t.Context(), 1000)
	require.NoError(t, err)
	for _, r := range runs {
		require.Equal(t, engine.StatusRunning, r.Status)
		require.Nil(t, r.Args)
	}
	return ids(runs)
}

func get(t *testing.T, e *store, id string) engine.Run {
	t.Helper()
	run, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	require.Nil(t, run.Args)
	require.Nil(t, run.Result)
	require.Nil(t, run.Content)
	return run
}

// whole returns a run with its payload.
func whole(t *testing.T, e *store, id string) engine.Run {
	t.Helper()
	run := get(t, e, id)
	for part, to := range map[engine.Part]*json.RawMessage{
		engine.PartArgs: &run.Args, engine.PartResult: &run.Result, engine.PartContent: &run.Content,
	} {
		data, err := e.Payload(t.Context(), id, part)
		require.NoError(t, err)
		*to = data
	}
	return run
}

func started(t *testing.T, e *store, id string) engine.Lease {
	t.Helper()
	lease, err := e.Start(t.Context(), id)
	require.NoError(t, err)
	return lease
}

func complete(t *testing.T, l engine.Lease, status engine.Status) {
	t.Helper()
	_, err := l.Complete(t.Context(), status, engine.Beat{}, engine.End{FinishedAt: time.Now()})
	require.NoError(t, err)
}

// same compares the stored forms of two runs, which are all that an engine has to keep.
func same(t *testing.T, want, got engine.Run) {
	t.Helper()
	w, err := json.Marshal(want)
	require.NoError(t, err)
	g, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(w), string(g))
}

// race makes n concurrent calls of f and returns how many returned nil.
func race(n int, f func(i int) error) (won int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if f(i) == nil {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
		})
	}
	all.Wait()
	return won
}

func ids(runs []engine.Run) string {
	var out []string
	for _, r := range runs {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

func read(t *testing.T, e *store, id string) string {
	t.Helper()
	chunk, err := e.Tail(t.Context(), id, 0, 1<<20)
	require.NoError(t, err)
	return string(chunk.Data)
}

func artifact(t *testing.T, e *store, id, name string) string {
	t.Helper()
	file, err := e.Open(t.Context(), id, name)
	require.NoError(t, err)
	data, err := io.ReadAll(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return string(data)
}
