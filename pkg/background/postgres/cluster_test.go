package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

func submitted(t *testing.T, e *Engine, id string, permits *engine.Permits) engine.Worker {
	t.Helper()
	w, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	require.NoError(t, w.Submit(t.Context(), run(id, "s"), permits))
	return w
}

func run(id, session string) engine.Run {
	return engine.Run{
		ID: id, Session: session, Tool: "primes", Args: json.RawMessage(`{"limit":10}`), Title: "Primes", Origin: engine.OriginSpawned,
		Timeout: time.Minute, OutputCap: 64, CreatedAt: time.Now(),
	}
}

// took waits for the event that matches.
func took(t *testing.T, feed <-chan engine.Event, matches func(engine.Event) bool) engine.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		select {
		case event := <-feed:
			if matches(event) {
				return event
			}
		case <-ctx.Done():
			require.Fail(t, "no such event")
		}
	}
}

// Watchers in one process are told what another one does.
func TestHints(t *testing.T) {
	url := pgtest.Schema(t)
	here, there := open(t, pglocal.With(url, "pool_max_conns", "1"), Options{}), open(t, url, Options{Poll: time.Hour})
	feed := there.Watch(t.Context(), "s")
	took(t, feed, func(e engine.Event) bool { return e.Kind == engine.EventMissed }) // it listens

	submitted(t, here, "bg_a", nil)
	event := took(t, feed, func(e engine.Event) bool { return e.Kind == engine.EventQueued })
	require.Equal(t, "bg_a", event.Run.ID)
	require.Equal(t, "Primes", event.Run.Title)
	require.Nil(t, event.Run.Args)

	_, err := here.PutSchedule(t.Context(), engine.Schedule{ID: "sc_a", Session: "s", Title: "Nightly"}, 10)
	require.NoError(t, err)
	event = took(t, feed, func(e engine.Event) bool { return e.Kind == engine.EventScheduled })
	require.Equal(t, "Nightly", event.Schedule.Title)

	// More hints than are kept while none can be sent.
	only, err := here.pool.Acquire(t.Context())
	require.NoError(t, err)
	for range 2*hintsKept + 10 { // some may have been taken before
		here.publish(engine.Event{Kind: engine.EventBeat, Session: "s", Run: &engine.Run{ID: "bg_a"}})
	}
	only.Release()
	took(t, feed, func(e engine.Event) bool { return e.Kind == engine.EventMissed })
}

// Without hints, and while there is no connection for them, watchers look again.
func TestNoHints(t *testing.T) {
	url := pgtest.Schema(t)
	deaf := open(t, url, Options{NoHints: true, Poll: time.Millisecond})
	feed := deaf.Watch(t.Context(), "s")
	for range 3 {
		took(t, feed, func(e engine.Event) bool { return e.Kind == engine.EventMissed })
	}

	cut := open(t, url, Options{Poll: time.Millisecond})
	feed = cut.Watch(t.Context(), "s")
	took(t, feed, func(e engine.Event) bool { return e.Kind == engine.EventMissed })
	other := open(t, url, Options{Poll: -1})
	_, err := other.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE '%' || current_schema() || '%'")
	require.NoError(t, err)
	took(t, feed, func(e engine.Event) bool { return e.Kind == engine.EventMissed })
}

// Many processes open a database at once: one of them makes the schema.
func TestOpenAtOnce(t *testing.T) {
	url := pgtest.Schema(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			e, err := Open(t.Context(), url, Options{Poll: -1})
			if err == nil {
				err = e.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestVersions(t *testing.T) {
	url := pgtest.Schema(t)
	e := open(t, url, Options{Poll: -1})
	version := func(version, oldest int) error {
		_, err := e.pool.Exec(t.Context(), "UPDATE toolhost_schema SET version = $1, oldest_reader = $2", version, oldest)
		require.NoError(t, err)
		other, err := Open(t.Context(), url, Options{Poll: -1})
		if err == nil {
			require.NoError(t, other.Close())
		}
		return err
	}
	require.NoError(t, version(99, len(migrations)), "a newer program still allows this one")
	err := version(99, 98)
	require.ErrorIs(t, err, ErrNewer)
	require.ErrorContains(t, err, "it has version 99 and needs a program that knows version 98")

	_, err = Open(t.Context(), "postgres://[::1", Options{})
	require.ErrorContains(t, err, "the address of the database")
}

// A step that fails changes nothing, and a later one is taken where the one before ended.
func TestMigrations(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.Schema(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()

	one, two := "CREATE TABLE one (n int);", "CREATE TABLE two (n int);"
	require.NoError(t, migrate(t.Context(), conn, []string{one}, 1))
	require.NoError(t, migrate(t.Context(), conn, []string{one}, 1), "once")
	require.ErrorContains(t, migrate(t.Context(), conn, []string{one, two, "CREATE TABLE two"}, 1), "bringing the schema to version 3")
	require.NoError(t, migrate(t.Context(), conn, []string{one, two}, 2))
	require.ErrorIs(t, migrate(t.Context(), conn, []string{one}, 1), ErrNewer)
}

// A process that stood still for longer than its lease does nothing more, even if the
// server thinks otherwise.
func TestStoodStill(t *testing.T) {
	e := open(t, pgtest.Schema(t), Options{Poll: -1})
	w := submitted(t, e, "bg_a", &engine.Permits{}).(*worker)
	lease, err := w.Start(t.Context(), "bg_a")
	require.NoError(t, err)
	w.renewed = w.renewed.Add(-engine.DefaultTTL)

	require.ErrorIs(t, lease.Append(t.Context(), 0, []byte("zombie")), engine.ErrFenced)
	require.ErrorIs(t, lease.Save(t.Context(), []byte("zombie")), engine.ErrFenced)
	_, err = lease.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{})
	require.ErrorIs(t, err, engine.ErrFenced)
	require.ErrorIs(t, w.Submit(t.Context(), run("bg_b", "s"), nil), engine.ErrFenced)
}

// Orphans are given to a worker only after it has had a lease for as long as that of the
// dead one lasted: after an outage of the server, all have the same time to come back.
func TestOrphansAfterAnOutage(t *testing.T) {
	now := time.Now()
	e := open(t, pgtest.Schema(t), Options{Poll: -1, clock: func() time.Time { return now }})
	w := submitted(t, e, "bg_a", &engine.Permits{})
	_, err := w.Start(t.Context(), "bg_a")
	require.NoError(t, err)

	now = now.Add(10 * engine.DefaultTTL) // the outage
	second, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	taken, err := second.Orphans(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, taken)

	for range 2 {
		now = now.Add(engine.DefaultTTL / 2)
		_, err = second.Renew(t.Context(), nil)
		require.NoError(t, err)
	}
	taken, err = second.Orphans(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, taken, 1)
}

// A queue that one session fills does not hide the others.
func TestFairClaims(t *testing.T) {
	e := open(t, pgtest.Schema(t), Options{Poll: -1})
	w, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	for i := range 40 {
		require.NoError(t, w.Submit(t.Context(), run(fmt.Sprintf("bg_much%d", i), "much"), nil))
	}
	require.NoError(t, w.Submit(t.Context(), run("bg_one", "one"), nil))

	claimed, err := w.Claim(t.Context(), 10, engine.Permits{Session: 3})
	require.NoError(t, err)
	var ids []string
	for _, r := range claimed {
		ids = append(ids, r.ID)
	}
	require.Equal(t, []string{"bg_much0", "bg_much1", "bg_much2", "bg_one"}, ids)
}

// A closed engine says so, and text that the server cannot store is refused.
func TestRefused(t *testing.T) {
	e, err := Open(t.Context(), pgtest.Schema(t), Options{Poll: -1})
	require.NoError(t, err)
	w, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	r := run("bg_a", "s\x00")
	require.ErrorContains(t, w.Submit(t.Context(), r, nil), "invalid byte sequence")
	r = run("bg_a", "s")
	r.Title, r.Tool = "zero \x00 and \xff", "tool\x00"
	require.NoError(t, w.Submit(t.Context(), r, nil), "what is only shown may be anything")
	found, err := e.List(t.Context(), engine.Query{Filter: engine.Filter{Text: "zero"}})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Title, "zero \x00 and")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Get(ctx, "bg_a")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, e.Close())
	_, err = e.Get(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrClosed)
	require.ErrorIs(t, w.Submit(t.Context(), run("bg_b", "s"), nil), engine.ErrClosed)
}

// A run that was claimed, but whose worker was never told, is given back: the connection broke
// after the commit. A run that is just being submitted stays claimed.
func TestLostAnswers(t *testing.T) {
	e := open(t, pglocal.With(pgtest.Schema(t), "pool_max_conns", "1"), Options{Poll: -1})
	joined, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	w := joined.(*worker)
	permits := &engine.Permits{}
	require.NoError(t, w.Submit(t.Context(), run("bg_known", "s"), permits))

	deaf := &worker{db: e.database, epoch: w.epoch, ttl: w.ttl, renewed: time.Now(), claimed: claims{known: map[string]bool{}}}
	require.NoError(t, deaf.Submit(t.Context(), run("bg_lost", "s"), permits))
	beat := func() bool {
		news, err := w.Renew(t.Context(), nil)
		require.NoError(t, err)
		return news.Queued
	}
	require.False(t, beat(), "nothing is given back without doubt")

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Claim(canceled, 1, engine.Permits{})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, beat())
	require.NoError(t, w.Submit(t.Context(), run("bg_later", "s"), permits))
	require.NoError(t, deaf.Submit(t.Context(), run("bg_meanwhile", "s"), permits), "its answer is on its way")
	require.True(t, beat())

	other, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	claimed, err := other.Claim(t.Context(), 10, engine.Permits{})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.Equal(t, "bg_lost", claimed[0].ID)
	for _, id := range []string{"bg_known", "bg_later", "bg_meanwhile"} {
		_, err = w.Start(t.Context(), id)
		require.NoError(t, err, id)
	}
	require.Empty(t, w.claimed.known)
	require.False(t, beat())

	require.NoError(t, deaf.Submit(t.Context(), run("bg_alone", "s"), permits))
	_, err = w.Claim(canceled, 1, engine.Permits{})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, beat())
	require.True(t, beat(), "also if it knows of no claim at all")
}

// A process that stands still in the middle of a transaction does not hold up the others.
func TestStandsStill(t *testing.T) {
	url := pgtest.Schema(t)
	still, other := open(t, pglocal.With(url, "idle_in_transaction_session_timeout", "100"), Options{}), open(t, url, Options{})
	locked, claimed, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- still.write(t.Context(), nil, func(tx *tx) error {
			_, err := tx.conn.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1, 0)", lockPermits)
			close(locked)
			<-claimed
			return err
		})
	}()

	<-locked
	w := submitted(t, other, "bg_a", nil)
	runs, err := w.Claim(t.Context(), 1, engine.Permits{Session: 1})
	require.NoError(t, err)
	require.Len(t, runs, 1)
	close(claimed)
	require.Error(t, <-ended)
}

// Concurrent appends by the runs of a process form one transaction, in which only a lease that
// has ended is refused.
func TestAppendTogether(t *testing.T) {
	e := open(t, pgtest.Schema(t), Options{})
	w, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	var leases []engine.Lease
	for i := range 5 {
		l, err := w.Adopt(t.Context(), run(fmt.Sprint("bg_", i), "s"), engine.Permits{})
		require.NoError(t, err)
		leases = append(leases, l)
	}
	_, err = leases[3].Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{})
	require.NoError(t, err)

	e.logs.mu.Lock()
	e.logs.leaders++ // until all wait
	e.logs.mu.Unlock()
	var all sync.WaitGroup
	errs := make([]error, len(leases))
	for i, l := range leases {
		all.Go(func() { errs[i] = l.Append(t.Context(), 0, []byte("hello")) })
	}
	for waiting := 0; waiting < len(leases); {
		e.logs.mu.Lock()
		waiting = len(e.logs.waiting)
		e.logs.mu.Unlock()
		runtime.Gosched()
	}
	e.logs.handOver()
	all.Wait()

	for i, err := range errs {
		if i == 3 {
			require.ErrorIs(t, err, engine.ErrFenced)
		} else {
			require.NoError(t, err)
		}
	}
	var rows, transactions int
	require.NoError(t, e.pool.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT xmin::text) FROM logs").Scan(&rows, &transactions))
	require.Equal(t, 4, rows)
	require.Equal(t, 1, transactions)
}
