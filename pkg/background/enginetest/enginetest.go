// Package enginetest checks an implementation of [background.Engine] against
// its contract.
package enginetest

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

// Run runs the suite over the engines open returns, which must be empty. Every
// test runs in a [synctest.Test] bubble, so that time is not waited for; open
// is called inside of it.
func Run(t *testing.T, open func(t *testing.T) background.Engine) {
	for name, test := range map[string]func(*testing.T, background.Engine){
		"submit and get":                    submitAndGet,
		"submit refuses a second":           submitTwice,
		"one of many submits wins":          submitRace,
		"nothing is shared":                 nothingShared,
		"adopt":                             adopt,
		"list":                              list,
		"list pages":                        listPages,
		"list is light":                     listIsLight,
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
		"prune":                             prune,
		"prune of the same instant":         pruneSameInstant,
		"prune keeps notices":               pruneNotices,
		"prune of schedules":                pruneSchedules,
		"schedules":                         schedules,
		"schedules are compared":            scheduleConflict,
		"one of many changes wins":          scheduleRace,
		"schedules are counted":             scheduleLimit,
		"as many schedules as there may be": scheduleLimitRace,
		"records are counted":               recordsCounted,
		"records make room":                 recordsMakeRoom,
		"records of those who take most go": recordsOfMost,
		"records of one owner":              recordsOfOwner,
		"a full quota":                      recordsFull,
		"one of many finds room":            recordsRace,
		"events":                            events,
		"events of a session":               eventsOfSession,
		"not found":                         notFound,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, open(t)) })
		})
	}
}

const outputCap = 64

func newRun(id, session string) background.Run {
	return background.Run{
		ID: id, Session: session, Tool: "primes", Args: json.RawMessage(`{"limit":10}`), Title: "Primes",
		Origin: background.OriginSpawned, SignalOnCompletion: true, Timeout: time.Minute, OutputCap: outputCap,
		CreatedAt: time.Now(), Status: background.StatusQueued,
	}
}

func submit(t *testing.T, e background.Engine, id, session string) {
	t.Helper()
	require.NoError(t, e.Submit(t.Context(), newRun(id, session)))
}

func get(t *testing.T, e background.Engine, id string) background.Run {
	t.Helper()
	run, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	return run
}

func claimed(t *testing.T, e background.Engine, id string) background.Lease {
	t.Helper()
	lease, err := e.Claim(t.Context(), id)
	require.NoError(t, err)
	return lease
}

func complete(t *testing.T, l background.Lease, status background.Status) {
	t.Helper()
	_, err := l.Complete(t.Context(), status, background.Beat{}, background.End{FinishedAt: time.Now()})
	require.NoError(t, err)
}

// same compares the stored form, which is what an engine has to keep.
func same(t *testing.T, want, got background.Run) {
	t.Helper()
	w, err := json.Marshal(want)
	require.NoError(t, err)
	g, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(w), string(g))
}

// race runs f n times at once and returns how many of them returned nil.
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

func ids(runs []background.Run) string {
	var out []string
	for _, r := range runs {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

func read(t *testing.T, e background.Engine, id string) string {
	t.Helper()
	chunk, err := e.Tail(t.Context(), id, 0, 1<<20)
	require.NoError(t, err)
	return string(chunk.Data)
}

func artifact(t *testing.T, e background.Engine, id, name string) string {
	t.Helper()
	file, err := e.Open(t.Context(), id, name)
	require.NoError(t, err)
	data, err := io.ReadAll(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return string(data)
}
