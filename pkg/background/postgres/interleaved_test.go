package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An interleaving makes two changes meet: a lock of a third transaction makes the first one wait
// in the middle, and the second one begins while it waits.
type interleaving struct {
	t    *testing.T
	e    *Engine
	lock pgx.Tx
	all  sync.WaitGroup

	mu    sync.Mutex
	ahead time.Duration // of e's clock
}

func interleave(t *testing.T) *interleaving {
	i := &interleaving{t: t}
	i.e = open(t, pgtest.Schema(t), Options{Poll: -1, clock: func() time.Time {
		i.mu.Lock()
		defer i.mu.Unlock()
		return time.Now().Add(i.ahead)
	}})
	return i
}

// pass lets time pass for the engine.
func (i *interleaving) pass(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ahead += d
}

// locks takes a lock until release.
func (i *interleaving) locks(sql string, args ...any) {
	var err error
	i.lock, err = i.e.pool.Begin(i.t.Context())
	require.NoError(i.t, err)
	_, err = i.lock.Exec(i.t.Context(), sql, args...)
	require.NoError(i.t, err)
}

// waits begins a change, and returns once n of them wait.
func (i *interleaving) waits(n int, change func() error) {
	i.all.Go(func() {
		if err := change(); err != nil {
			i.t.Error(err)
		}
	})
	require.Eventually(i.t, func() bool {
		var waiting int
		err := i.lock.QueryRow(i.t.Context(), "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted").Scan(&waiting)
		return err == nil && waiting >= n
	}, time.Minute, time.Millisecond)
}

// release frees the lock, and returns once what waited for it has ended.
func (i *interleaving) release() {
	require.NoError(i.t, i.lock.Rollback(i.t.Context()))
	i.all.Wait()
}

// begun starts a run.
func (i *interleaving) begun(id string) (engine.Worker, engine.Lease) {
	w, err := i.e.Join(i.t.Context(), engine.WorkerInfo{})
	require.NoError(i.t, err)
	require.NoError(i.t, w.Submit(i.t.Context(), run(id, "s"), &engine.Permits{}))
	l, err := w.Start(i.t.Context(), id)
	require.NoError(i.t, err)
	return w, l
}

// A message that is stored while its run is about to wait wakes it.
func TestMessageMeetsSuspension(t *testing.T) {
	i := interleave(t)
	_, l := i.begun("bg_a")
	box := engine.Scope{Session: "s", Run: "bg_a"}
	first, err := i.e.PutValue(t.Context(), box, engine.Value{Data: []byte("one")}, engine.ValueLimit{})
	require.NoError(t, err)

	i.locks("SELECT FROM scopes FOR UPDATE")
	i.waits(1, func() error {
		_, err := i.e.PutValue(t.Context(), box, engine.Value{Data: []byte("two")}, engine.ValueLimit{})
		return err
	})
	i.waits(2, func() error {
		_, err := l.Suspend(t.Context(), engine.Suspension{State: []byte("x"), Mail: first.Version})
		return err
	})
	i.release()
	stored, err := i.e.Get(t.Context(), "bg_a")
	require.NoError(t, err)
	require.Equal(t, engine.StatusQueued, stored.Status)
}

// A suspension is stored with its child or not at all, though the lease ends meanwhile.
func TestLeaseEndsInSuspension(t *testing.T) {
	i := interleave(t)
	_, l := i.begun("bg_a")
	i.locks("SELECT FROM runs FOR UPDATE")
	i.waits(1, func() error {
		child := run("bg_a-1", "s")
		child.Parent = "bg_a"
		if _, err := l.Suspend(t.Context(), engine.Suspension{State: []byte("after child"), Hold: true, Children: []engine.Run{child}}); err == nil {
			t.Error("it is stored")
		}
		return nil
	})
	i.pass(time.Hour)
	i.release()
	stored, err := i.e.Get(t.Context(), "bg_a")
	require.NoError(t, err)
	require.Zero(t, stored.StateSize)
}

// A schedule that is enabled while old ones are removed stays.
func TestEnabledScheduleMeetsPrune(t *testing.T) {
	i := interleave(t)
	s, err := i.e.PutSchedule(t.Context(), engine.Schedule{ID: "sc_a", Session: "s"}, 10)
	require.NoError(t, err)
	i.locks("LOCK TABLE accounts IN EXCLUSIVE MODE")
	i.waits(1, func() error {
		s.Enabled = true
		_, err := i.e.PutSchedule(t.Context(), s, 10)
		return err
	})
	i.waits(2, func() error {
		_, err := i.e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour), Keep: 100})
		return err
	})
	i.release()
	_, err = i.e.GetSchedule(t.Context(), "sc_a")
	require.NoError(t, err)
}

// A value that is written while old ones are removed stays too.
func TestValueMeetsPrune(t *testing.T) {
	i := interleave(t)
	at := engine.Scope{Session: "s"}
	put := func(text string) error {
		_, err := i.e.PutValue(t.Context(), at, engine.Value{Key: "k", Version: engine.AnyVersion, Data: []byte(text)}, engine.ValueLimit{})
		return err
	}
	require.NoError(t, put("old"))
	i.pass(time.Hour)
	i.locks("LOCK TABLE accounts IN EXCLUSIVE MODE")
	i.waits(1, func() error { return put("new value") })
	i.waits(2, func() error {
		_, err := i.e.Prune(t.Context(), engine.Retention{Keep: 100, Values: time.Now().Add(time.Minute)})
		return err
	})
	i.release()
	v, err := i.e.Value(t.Context(), at, "k")
	require.NoError(t, err)
	require.Equal(t, "new value", string(v.Data))
}

// Nobody takes over the runs of a worker that renews its lease in time, however long the renewal
// takes.
func TestLateRenewal(t *testing.T) {
	i := interleave(t)
	w, _ := i.begun("bg_a")
	other, err := i.e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	i.pass(engine.DefaultTTL - 5*time.Second)
	_, err = other.Renew(t.Context(), nil)
	require.NoError(t, err)

	i.locks("SELECT FROM runs WHERE id = 'bg_a' FOR UPDATE")
	i.waits(1, func() error {
		_, err := w.Renew(t.Context(), map[string]engine.Beat{"bg_a": {Detail: "x"}})
		return err
	})
	i.pass(6 * time.Second)
	taken, err := other.Orphans(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, taken)
	i.release()
}

// A run that was claimed for a worker whose record is gone can be claimed again.
func TestClaimOfARemovedWorker(t *testing.T) {
	i := interleave(t)
	w, err := i.e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	require.NoError(t, w.Submit(t.Context(), run("bg_a", "s"), nil))
	i.locks("SELECT pg_advisory_xact_lock_shared($1, 0)", lockPermits)
	i.waits(1, func() error {
		_, err := w.Claim(t.Context(), 1, engine.Permits{})
		return err
	})
	i.pass(time.Minute)
	_, err = i.e.Prune(t.Context(), engine.Retention{Keep: 100})
	require.NoError(t, err)
	i.release()

	other, err := i.e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	claimed, err := other.Claim(t.Context(), 1, engine.Permits{})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
}

// Whoever stores a child whose key is taken learns which run has it.
func TestKeyMeetsItself(t *testing.T) {
	i := interleave(t)
	w, _ := i.begun("bg_p")
	for n := range 20 {
		var all sync.WaitGroup
		for m := range 3 {
			all.Go(func() {
				child := run(fmt.Sprintf("bg_%d_%d", n, m), "s")
				child.Parent, child.IdempotencyKey = "bg_p", fmt.Sprint(n)
				err := w.Submit(t.Context(), child, nil)
				if _, exists := errors.AsType[*engine.ExistsError](err); err != nil && !exists {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
