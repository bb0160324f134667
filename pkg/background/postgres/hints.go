package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	// channel is the beginning of the name of the NOTIFY channel; the name of the schema
	// follows.
	channel = "toolhost_"

	// hintEvery is the shortest time between two notifications of a process. They are
	// sent in transactions of their own: NOTIFY serializes commits.
	hintEvery = 20 * time.Millisecond

	hintBytes = 7000 // maximum size of a notification in bytes; the limit of PostgreSQL is 8000
	hintsKept = 1000 // maximum number of hints waiting to be sent; more are replaced by one that says so
)

// hints report changes to watchers in other processes. If hints are lost, those
// watchers read everything again.
type hints struct {
	db     *database
	config *pgx.ConnConfig
	poll   time.Duration
	name   string // name of this process
	send   bool

	mu      sync.Mutex
	waiting []hint
	missed  bool // whether there were too many hints
	ready   chan struct{}

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// A hint is an event without its run or schedule, which the receiver reads from the database.
type hint struct {
	Kind     engine.EventKind `json:"k"`
	Session  string           `json:"s,omitempty"`
	Run      string           `json:"r,omitempty"`
	Schedule string           `json:"c,omitempty"`
	Claimed  bool             `json:"w,omitempty"`
}

// A note is the payload of NOTIFY.
type note struct {
	From  string `json:"f"`
	Hints []hint `json:"h"`
}

func startHints(d *database, config *pgx.ConnConfig, o Options) *hints {
	h := &hints{db: d, config: config, poll: o.Poll, name: rand.Text(), send: !o.NoHints, ready: make(chan struct{}, 1)}
	if h.poll == 0 {
		h.poll = time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	if h.send {
		h.ended.Go(func() { h.sending(ctx) })
		h.ended.Go(func() { h.listening(ctx) })
	} else {
		h.ended.Go(func() { h.polling(ctx) })
	}
	return h
}

func (h *hints) close() {
	h.cancel()
	h.ended.Wait()
}

// publish notifies the watchers of this process and sends a hint to others.
func (d *database) publish(event engine.Event) {
	d.feed.Publish(event)
	h := d.hints
	if h == nil || !h.send {
		return
	}

	one := hint{Kind: event.Kind, Session: event.Session, Claimed: event.Claimed}
	if event.Run != nil {
		one.Run = event.Run.ID
	}
	if event.Schedule != nil {
		one.Schedule = event.Schedule.ID
	}
	h.mu.Lock()
	if len(h.waiting) < hintsKept {
		h.waiting = append(h.waiting, one)
	} else {
		h.missed = true
	}
	h.mu.Unlock()
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// sending sends waiting hints.
func (h *hints) sending(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.ready:
		}
		h.mu.Lock()
		batch, missed := h.waiting, h.missed
		h.waiting, h.missed = nil, false
		h.mu.Unlock()
		if missed {
			batch = []hint{{Kind: engine.EventMissed}}
		}
		h.notify(ctx, batch)

		select {
		case <-ctx.Done():
			return
		case <-time.After(hintEvery):
		}
	}
}

// notify sends hints. If that fails, other processes see the changes when they poll.
func (h *hints) notify(ctx context.Context, all []hint) {
	var batch pgx.Batch
	batch.Queue("SET LOCAL synchronous_commit = off")
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && size < hintBytes {
			text, _ := json.Marshal(all[n])
			size += len(text) + 1
			if size < hintBytes || n == 0 {
				n++
			}
		}
		text, err := json.Marshal(note{h.name, all[:n]})
		if err == nil && len(text) < 7990 {
			batch.Queue("SELECT pg_notify($1 || current_schema(), $2)", channel, string(text))
		}
		all = all[n:]
	}
	_ = h.db.pool.SendBatch(ctx, &batch).Close()
}

// listening receives the hints of other processes. While there is no connection,
// watchers read everything again.
func (h *hints) listening(ctx context.Context) {
	for ctx.Err() == nil {
		if conn, err := h.connect(ctx); err == nil {
			h.db.feed.Missed() // changes up to now
			for err == nil {
				var heard *pgconn.Notification
				if heard, err = conn.WaitForNotification(ctx); err == nil {
					h.hear(ctx, heard.Payload)
				}
			}
			_ = conn.Close(context.WithoutCancel(ctx))
		}
		h.db.feed.Missed()
		select {
		case <-ctx.Done():
		case <-time.After(h.poll):
		}
	}
}

func (h *hints) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, h.config)
	if err != nil {
		return nil, err
	}
	var schema string
	if err = conn.QueryRow(ctx, "SELECT current_schema()").Scan(&schema); err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel + schema}.Sanitize())
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// hear notifies the watchers of this process of changes by another one.
func (h *hints) hear(ctx context.Context, payload string) {
	var n note
	if json.Unmarshal([]byte(payload), &n) != nil || n.From == h.name {
		return
	}

	runs := h.runsOf(ctx, n.Hints)
	for _, one := range n.Hints {
		event := engine.Event{Kind: one.Kind, Session: one.Session, Claimed: one.Claimed}
		switch {
		case one.Kind == engine.EventMissed:
			h.db.feed.Missed()
			continue
		case one.Run != "":
			run := runs[one.Run]
			event.Run = &run
		case one.Schedule != "":
			s, err := scheduleStore{h.db}.GetSchedule(ctx, one.Schedule)
			if err != nil {
				s = engine.Schedule{ID: one.Schedule, Session: one.Session}
			}
			event.Schedule = &s
		}
		h.db.feed.Publish(event)
	}
}

// runsOf reads the runs that hints name, by id. Removed runs have only their id.
func (h *hints) runsOf(ctx context.Context, hints []hint) map[string]engine.Run {
	runs := map[string]engine.Run{}
	var ids []string
	for _, one := range hints {
		if _, twice := runs[one.Run]; one.Run != "" && !twice {
			runs[one.Run] = engine.Run{ID: one.Run, Session: one.Session}
			ids = append(ids, one.Run)
		}
	}
	if len(ids) == 0 {
		return runs
	}

	found, err := h.db.pool.Query(ctx, "SELECT "+columns+" FROM runs r WHERE r.id = ANY($1)", ids)
	if err != nil {
		return runs
	}
	rows, _ := scanRuns(found) // the rows read before an error
	for _, r := range rows {
		runs[r.ID] = r.Run
	}
	return runs
}

// polling makes watchers read everything again, for a server without hints.
func (h *hints) polling(ctx context.Context) {
	tick := time.NewTicker(h.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.db.feed.Missed()
		}
	}
}
