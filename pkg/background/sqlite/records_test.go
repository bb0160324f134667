package sqlite

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/ledger"
)

// testQuota is small, so that many records are evicted in a test. Sessions are
// their owners, so that two ledgers can be compared.
var testQuota = engine.Quota{Max: 600 << 10, Each: 400 << 10}

// selectLengths computes the size of records from the data that is stored,
// without their result.json.
const selectLengths = `SELECT r.id, r.session, r.size, r.finished IS NOT NULL, r.notice,
	16384 + ifnull(length(a.data), 0) + ifnull(length(s.data), 0) + ifnull(length(c.data), 0) + ifnull(length(k.data), 0)
	FROM runs r LEFT JOIN args a ON a.seq = r.seq LEFT JOIN results s ON s.seq = r.seq
	LEFT JOIN contents c ON c.seq = r.seq LEFT JOIN checkpoints k ON k.seq = r.seq`

// recount compares the ledger, the sizes in the database and what is stored. It
// runs on the goroutine that writes, which must not end.
func recount(t *testing.T, e *tester, step any) {
	t.Helper()
	fresh := ledger.New(testQuota)
	require.NoError(t, e.db.write(t.Context(), func(w *conn) error {
		err := w.query(func(row []driver.Value) error {
			id, session, size, ended, pending, length := row[0].(string), row[1].(string), row[2].(int64), row[3].(int64), row[4].(int64), row[5].(int64)
			if ended == 1 {
				r, err := runTable.load(w, id)
				assert.NoError(t, err)
				file, err := os.ReadFile(filepath.Join(e.dir, runsFolder, r.Folder(), engine.ResultJSON))
				assert.NoError(t, err)
				length += int64(len(file))
			}
			assert.Equal(t, length, size, "%v: %s", step, id)
			fresh.Add(session, size, size*ended*(1-pending))
			return nil
		}, selectLengths)
		assert.NoError(t, err)
		err = w.query(func(row []driver.Value) error {
			assert.Equal(t, row[1], row[2], step)
			fresh.Add(row[0].(string), row[1].(int64), row[1].(int64)*(1-row[3].(int64)))
			return nil
		}, `SELECT session, size, 16384 + length(record) + ifnull((SELECT length(data) FROM schedule_args a WHERE a.seq = schedules.seq), 0),
			enabled FROM schedules`)
		assert.NoError(t, err)
		assert.Equal(t, fresh, w.book.ledger, step)
		return nil
	}))
	require.False(t, t.Failed())
	require.Equal(t, fresh.Used(), e.Recorded(), step)
}

func text(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("<", n) + `"`) }

// FuzzRecordQuota takes steps, each described by three bytes, and compares the
// counted size with the actual one. Everything that is admitted stays within the
// quota; what active runs add comes on top.
func FuzzRecordQuota(f *testing.F) {
	f.Add([]byte("a0\x40a1\x40b1\x40c1\x50d1\x60f0\x10g0\x20f1\x30g1\x20h1\x20a2\x80a3\x80a4\x80"))
	f.Add([]byte("a0\xffa1\xffa2\xffb0\x10b1\x10b2\x10d0\xffd1\xffd2\xffe0\x00a3\x20a4\xffk0\x00a5\xff"))
	f.Add([]byte("a0\x40b0\x10c0\x30c0\x20d0\x10g0\x20"))
	f.Add([]byte("i0\x40i1\x40i2\x40j0\x10j1\x10i3\xffi4\xffk0\x00i5\xffi6\xffi7\xffl0\x00"))
	f.Add([]byte("a0\x10b0\x10c0\x10k0\x00a1\xffb1\x10m1\x10b1\x10c1\xffc1\x01d1\x80g1\x00a2\xffa3\xffa4\xff"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) <= 150 {
			countedScript(t, script)
		}
	})
}

// TestRecordQuota does the same with long scripts.
func TestRecordQuota(t *testing.T) {
	const ops = "aaabbbcccdddefgggghhiijjklm"
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var script []byte
		for range 120 {
			script = append(script, ops[rnd.IntN(len(ops))], byte(rnd.UintN(6)), byte(rnd.UintN(100)))
		}
		countedScript(t, script)
	}
}

func countedScript(t *testing.T, script []byte) {
	dir := t.TempDir()
	e := openedWith(t, dir, Config{})
	e.limit(t, testQuota)
	leases := map[string]engine.Lease{}
	for i := 0; i+3 <= len(script); i += 3 {
		op, n, size := script[i], int(script[i+1]%16), int(script[i+2])<<10
		id, session := fmt.Sprintf("bg_%d", n), string("xyz"[n%3])
		run := newRun(id)
		run.Session, run.Args, run.SignalOnCompletion = session, text(size), n%2 == 0
		var err error
		switch op {
		case 'a':
			err = e.Submit(t.Context(), run)
		case 'b':
			if l, err := e.Claim(t.Context(), id); err == nil {
				leases[id] = l
			}
		case 'h':
			var l engine.Lease
			if l, err = e.Adopt(t.Context(), run); err == nil {
				leases[id] = l
			}
		case 'c':
			if l := leases[id]; l != nil {
				_ = l.Save(t.Context(), text(size))
			}
		case 'd':
			if l := leases[id]; l != nil {
				_, _ = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: text(size), Content: text(size / 3), FinishedAt: time.Now()})
			}
		case 'e':
			_, _ = e.Cancel(t.Context(), id, engine.Cancellation{At: time.Now()})
		case 'f':
			_, _ = e.Abandon(t.Context(), id, 0, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
		case 'g':
			_ = e.Acknowledge(t.Context(), session, []string{id})
		case 'm':
			_ = e.Requeue(t.Context(), id, 1)
		case 'i', 'j':
			s, missing := e.GetSchedule(t.Context(), id)
			if missing != nil {
				s = engine.Schedule{ID: id, Session: session, Tool: "t"}
			}
			s.Args, s.Enabled = text(size), op == 'i'
			_, err = e.PutSchedule(t.Context(), s, 1000)
		case 'l':
			_, err = e.Prune(t.Context(), engine.Retention{Keep: n, Notices: time.Now().Add(time.Hour)})
		case 'k':
			require.NoError(t, e.Close())
			e = openedWith(t, dir, Config{})
			e.limit(t, testQuota)
			clear(leases)
		}
		if err != nil && !errors.Is(err, engine.ErrExists) {
			require.ErrorIs(t, err, engine.ErrRecordLimit)
		}
		recount(t, e, string(script[:i+3]))
	}
	require.Zero(t, e.Stats().Problems)
}

// A change that SQLite refuses counts for nothing, as do those it takes with it,
// until they are made again.
func TestRecordsOfATransactionThatFails(t *testing.T) {
	e := opened(t, t.TempDir())
	e.limit(t, testQuota)
	run := newRun("bg_a")
	run.Args = text(1000)
	require.NoError(t, e.Submit(t.Context(), run))
	before := e.Recorded()
	err := e.db.write(t.Context(), func(w *conn) error {
		other := newRun("bg_b")
		if _, err := insert(w, nil, row{size: other.Size(), stored: stored{Run: other}}, []byte("{}")); err != nil {
			return err
		}
		return w.run(`INSERT INTO args VALUES (1, 'x'), (1, 'y')`)
	})
	require.True(t, isSQL(err), err)
	require.Equal(t, before, e.Recorded())
	recount(t, e, "rolled back")
}

// A record that cannot be read can be evicted too.
func TestDamagedRecordGoes(t *testing.T) {
	e := opened(t, t.TempDir())
	e.limit(t, engine.Quota{Max: 100 << 10, Each: 100 << 10})
	for i := range 3 {
		id := fmt.Sprintf("bg_%d", i)
		ended(t, e, id, "")
		require.NoError(t, e.Acknowledge(t.Context(), "s", []string{id}))
	}
	sql(t, e, `UPDATE runs SET record = 'x' WHERE id = 'bg_0'`)
	run := newRun("bg_new")
	run.Args = json.RawMessage(bytes.Repeat([]byte{'1'}, 60<<10))
	require.NoError(t, e.Submit(t.Context(), run))
	_, err := e.Get(t.Context(), "bg_1")
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.Equal(t, "bg_2", get(t, e, "bg_2").ID, "no more than is needed")
	for _, id := range []string{"bg_0", "bg_1"} {
		require.NoDirExists(t, filepath.Join(e.dir, runsFolder, id))
	}
}

// An index with an entry that its table lacks causes an error, because the
// goroutine that writes must not end.
func TestNothingWhereARecordShouldBe(t *testing.T) {
	e := opened(t, t.TempDir())
	require.NoError(t, e.db.write(t.Context(), func(w *conn) error {
		there, err := e.drop(w, victim{table: "runs", seq: 7})
		assert.NoError(t, err)
		assert.False(t, there)
		return nil
	}))
}

// The query for evictable records reads two indexes, in their order.
func TestSpareIsNotSorted(t *testing.T) {
	e := opened(t, t.TempDir())
	var plan []string
	require.NoError(t, e.db.read(t.Context(), func(c *conn) error {
		return c.query(func(row []driver.Value) error { plan = append(plan, fmt.Sprint(row[3])); return nil }, "EXPLAIN QUERY PLAN "+selectSpare)
	}))
	all := strings.Join(plan, "\n")
	require.NotContains(t, all, "TEMP B-TREE")
	require.Contains(t, all, "COVERING INDEX runs_spare")
	require.Contains(t, all, "COVERING INDEX schedules_spare")
}
