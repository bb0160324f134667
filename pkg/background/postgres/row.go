package postgres

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A row is a stored run, without its payload.
type row struct {
	engine.Run
	seq      int64
	owner    string
	epoch    int64 // epoch of its worker; 0: none
	turn     int   // number of its current lease
	size     int64
	parts    map[string][]byte // payload columns that update also stores
	notifier int64
}

// The column values for the states of a notice.
var notices = map[engine.NoticeState]int{engine.NoticeNone: 0, engine.NoticePending: 1, engine.NoticeSeen: 2}

func noticeState(n int) engine.NoticeState {
	return [...]engine.NoticeState{engine.NoticeNone, engine.NoticePending, engine.NoticeSeen}[n]
}

// columns are the columns that scan reads, from the table runs with the alias r.
const columns = `r.seq, r.owner, r.epoch, r.turn, r.size, r.status, r.woken, r.held, r.notice, r.notifier, r.beat,
	greatest(r.heartbeat, (SELECT renewed FROM workers w WHERE w.epoch = r.epoch AND r.status = 'running')), r.record`

// scan reads one row: the columns in [columns], and further ones into more.
func scan(from pgx.Row, more ...any) (r row, err error) {
	var status engine.Status
	var woken, held bool
	var notice int
	var heartbeat *int64
	var beat, record []byte
	to := []any{&r.seq, &r.owner, &r.epoch, &r.turn, &r.size, &status, &woken, &held, &notice, &r.notifier, &beat, &heartbeat, &record}
	if err := from.Scan(append(to, more...)...); err != nil {
		return r, err
	}
	if err := json.Unmarshal(record, &r.Run); err != nil {
		return r, fmt.Errorf("the record of run %d: %w", r.seq, err)
	}

	var said engine.Beat
	if err := json.Unmarshal(beat, &said); err != nil {
		return r, fmt.Errorf("the record of run %d: %w", r.seq, err)
	}
	r.Run = r.Light() // its arguments are null
	r.Run.Status, r.Woken, r.Notice, r.Beat = status, woken, noticeState(notice), said
	if !held {
		r.Held = ""
	}
	if at := instant(heartbeat); at.After(r.HeartbeatAt) {
		r.HeartbeatAt = at
	}
	return r, nil
}

// scanRuns collects the runs that a query for [columns] found.
func scanRuns(rows pgx.Rows) (found []row, err error) {
	defer rows.Close()
	for rows.Next() {
		r, err := scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, rows.Err()
}

func runsOf(rows []row) (runs []engine.Run) {
	for _, r := range rows {
		runs = append(runs, r.Run)
	}
	return runs
}

// nanos returns a time as a column value; nil for the zero time.
func nanos(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

func instant(nanos *int64) time.Time {
	if nanos == nil {
		return time.Time{}
	}
	return time.Unix(0, *nanos)
}

// orNull returns a text as a column value; NULL if it is empty.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// clean returns a text for a column that is only used for searching: the server accepts no
// zero bytes.
func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "") }

func errorKind(r engine.Run) *string {
	if r.Error == nil {
		return nil
	}
	return orNull(clean(string(r.Error.Kind)))
}

// records returns the JSON forms of a run without its payload, and of its beat.
func records(run engine.Run) (record, beat []byte, err error) {
	record, err = json.Marshal(run.Light())
	if err == nil {
		beat, err = json.Marshal(run.Beat)
	}
	return record, beat, err
}

// insertRun stores a new run, with the parameters of insertArgs. A further condition, with
// parameters of its own, takes the place of %s.
const insertRun = `INSERT INTO runs (id, session, owner, key, schedule, parent, after, tool, kind, plugin, created, parked, held, status, woken,
			attempt, epoch, turn, heartbeat, stop, started, notice, size, search, beat, record, args, version)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::bigint, $12::boolean, $13::boolean, $14, false,
			$15::integer, $16::bigint, $17::integer, CASE WHEN $17::integer > 0 THEN now END, $18::boolean, $19::bigint, 0, $20::bigint, $21, $22::json, $23::json, $24::bytea, $29
			FROM (SELECT coalesce($25::bigint, (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint) AS now) n
			WHERE EXISTS (SELECT FROM workers w WHERE w.epoch = $26 AND w.renewed + w.ttl > now)
			AND ($27::bigint = 0 OR $27 >= $20 + (SELECT coalesce(sum(used), 0) FROM totals))
			AND ($28::bigint = 0 OR $28 >= $20 + (SELECT coalesce(sum(used), 0) FROM accounts a WHERE a.owner = $3))%s
		ON CONFLICT DO NOTHING RETURNING seq, heartbeat`

// insertAndCharge is like insertRun, but also charges the owner, in the same statement.
const insertAndCharge = `WITH new AS (` + insertRun + `
	), account AS (
		INSERT INTO accounts SELECT $3, pg_backend_pid() %% 64, $20, 0 FROM new
		ON CONFLICT (owner, part) DO UPDATE SET used = accounts.used + excluded.used
	), total AS (
		INSERT INTO totals SELECT pg_backend_pid() %% 64, $20 FROM new ON CONFLICT (part) DO UPDATE SET used = totals.used + excluded.used
	)
	SELECT seq, heartbeat FROM new`

// insertArgs returns the parameters of insertRun for a run of a worker. The statement stores
// nothing if the worker has no lease, or if the size of all records would then exceed all, or
// the size of those of the owner would exceed owned, both in bytes; 0: no limit.
func (w *worker) insertArgs(r row, all, owned int64) ([]any, error) {
	record, beat, err := records(r.Run)
	return []any{r.ID, r.Session, r.owner, orNull(r.IdempotencyKey), orNull(r.Schedule), orNull(r.Parent), orNull(r.After),
		clean(r.Tool), clean(r.Kind), clean(r.Plugin), r.CreatedAt.UnixNano(), r.Origin == engine.OriginParked, r.Held != "", r.Run.Status,
		r.Attempt, r.epoch, r.turn, r.Cancel != nil, nanos(r.StartedAt), r.size, clean(r.SearchText()), beat, record, []byte(r.Args),
		w.db.now(), w.epoch, all, owned, clean(r.WantedVersion())}, err
}

// update stores a run that was read and locked as before, and charges its owner for
// the change in size.
func (t *tx) update(before, r row) error {
	record, beat, err := records(r.Run)
	if err != nil {
		return err
	}

	set := `held = $2, status = $3, woken = $4, attempt = $5, epoch = $6, turn = $7, heartbeat = $8, stop = $9, wake = $10, await = $11,
		started = $12, finished = $13, error = $14, notice = $15, notifier = $16, size = $17, search = $18, beat = $19, record = $20, version = $21`
	args := []any{r.seq, r.Held != "", r.Run.Status, r.Woken, r.Attempt, r.epoch, r.turn, nanos(r.HeartbeatAt), r.Cancel != nil,
		nanos(r.WakeAt), r.Await, nanos(r.StartedAt), ended(r.Run), errorKind(r.Run), notices[r.Notice], r.notifier, r.size, clean(r.SearchText()), beat, record, clean(r.WantedVersion())}
	for _, name := range slices.Sorted(maps.Keys(r.parts)) { // in a fixed order: each order is another statement
		args = append(args, r.parts[name])
		set += fmt.Sprintf(", %s = $%d", name, len(args))
	}
	t.queue("UPDATE runs SET "+set+" WHERE seq = $1", args...)
	t.charge(r.owner, r.size, r.Evictable(), before.size, before.Evictable())
	return nil
}

// ended returns when a run became terminal, or NULL. A run may end without a time.
func ended(r engine.Run) *int64 {
	if !r.Status.Terminal() {
		return nil
	}
	at := nanos(r.FinishedAt)
	if at == nil {
		at = new(int64)
	}
	return at
}

// with makes update also store a payload column.
func (r *row) with(name string, data []byte) {
	if r.parts == nil {
		r.parts = map[string][]byte{}
	}
	r.parts[name] = data
}
