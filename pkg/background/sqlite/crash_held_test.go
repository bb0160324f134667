package sqlite_test

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Runs of the crash harness that wait for an approval. Hosts are killed before, while and
// after somebody decides on them.

const (
	crashHeld     = 12 // runs of a session that wait, before one of them is decided on
	crashHeldKeys = 60 // keys of a session for runs that wait
)

// hold submits a run that waits, now and then with a key that others have used, or decides
// on one that does.
func (h *crashHost) hold(session string) {
	waiting := h.held(session)
	if len(waiting) >= crashHeld || len(waiting) > 0 && h.random.IntN(2) == 0 {
		h.decide(waiting[h.random.IntN(len(waiting))])
		return
	}

	req := background.SpawnRequest{Tool: h.tool(), Args: crashArgs(), Held: "approval"}
	if h.random.IntN(2) == 0 {
		req.IdempotencyKey = fmt.Sprintf("%s-held-%d", session, h.random.IntN(crashHeldKeys))
		seed := fnv.New64a()
		fmt.Fprint(seed, req.IdempotencyKey)
		req.Tool, req.Args = crashTools[seed.Sum64()%uint64(len(crashTools))], fmt.Appendf(nil, `{"token":"%016x"}`, seed.Sum64())
	}
	run, err := h.manager.Spawn(h.t.Context(), session, req)
	if h.refused(err) {
		return
	}
	h.say("spawned", run.ID)
	h.say("held", run.ID)
	if req.IdempotencyKey != "" {
		h.say("keyed", req.IdempotencyKey, run.ID)
	}
}

// held returns the session's runs that wait.
func (h *crashHost) held(session string) []engine.Run {
	runs, err := h.manager.List(h.t.Context(), engine.Query{Session: session, Active: true})
	require.NoError(h.t, err)
	return slices.DeleteFunc(runs, func(r engine.Run) bool { return r.Held == "" })
}

// decide approves or refuses a run that waits. It says so before and after.
func (h *crashHost) decide(run engine.Run) {
	if h.random.IntN(2) == 0 {
		h.say("approving", run.ID)
		_, err := h.manager.Release(h.t.Context(), run.ID)
		require.NoError(h.t, err)
		h.say("approved", run.ID)
		return
	}
	h.say("seen", run.ID)
	stopped, err := h.manager.Stop(h.t.Context(), run.Session, run.ID, background.StopRequest{Force: true, Reason: "not approved"})
	require.NoError(h.t, err)
	require.Equal(h.t, engine.StatusCanceled, stopped.Status)
	h.say("refused", run.ID)
}

// decideAll decides on all runs that the killed hosts left waiting.
func (h *crashHost) decideAll() {
	for i := range crashSessions {
		for _, run := range h.held(fmt.Sprint("session-", i)) {
			h.say("left", run.ID)
			h.decide(run)
		}
	}
}

// decisions: a run that waited is not lost, never started before somebody approved it, and
// keeps the decision that its host reported. What executed checks shows that an approval
// counts once.
func (h *harness) decisions(stored map[string]engine.Run) {
	set := func(word string) map[string]bool {
		ids := make(map[string]bool)
		for _, id := range h.said[word] {
			ids[id] = true
		}
		return ids
	}
	held, approving, approved, refused, left := set("held"), set("approving"), set("approved"), set("refused"), set("left")

	for id := range held {
		run, found := stored[id]
		require.True(h.t, found, "run %s waited and is lost", id)
		if run.Attempt > 0 {
			require.True(h.t, approving[id], "run %s started, and nobody approved it", id)
		}
		require.True(h.t, left[id] || approving[id] || run.Cancel != nil, "run %s did not wait until somebody decided", id)
		if approved[id] && run.Cancel == nil {
			require.NotZero(h.t, run.Attempt, "run %s was approved and never started: %s", id, run.Status)
		}
	}
	for id := range refused {
		require.Equal(h.t, engine.StatusCanceled, stored[id].Status, "run %s was refused", id)
		require.Zero(h.t, stored[id].Attempt, "run %s was refused and started", id)
		require.False(h.t, approved[id], "run %s was approved and refused", id)
	}
	h.t.Logf("%5d runs waited: %d approved, %d refused, %d until the last host", len(held), len(approved), len(refused), len(left))
}
