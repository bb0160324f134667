// Package c_test calls the plugins in C of this folder. toolhost test plays their examples.
package c_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// sqlite is the plugin with a folder that has shop.db.
type sqlite struct {
	host   *host.Host
	module *host.Module
	dir    string
	fuel   int64
}

func open(t *testing.T) *sqlite {
	t.Helper()
	wasm, err := os.ReadFile("sqlite/sqlite.wasm")
	if os.IsNotExist(err) {
		t.Skip("sqlite.wasm is not built: examples/c/sqlite/build.sh builds it")
	}
	require.NoError(t, err)
	h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	m, err := h.Compile(t.Context(), wasm)
	require.NoError(t, err)

	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("sqlite/testdata/data")))
	return &sqlite{host: h, module: m, dir: dir}
}

type object = map[string]any

// call calls a tool as the host does: readonly tools cannot write.
func (s *sqlite) call(t *testing.T, tool string, args object) (abi.Result, error) {
	data, err := json.Marshal(args)
	require.NoError(t, err)
	mode := abi.FileRead
	if tool == "execute" {
		mode = abi.FileWrite
	}
	policy := host.Policy{Fuel: s.fuel, Timeout: 30 * time.Second}
	policy.Clock, policy.Files = true, []host.Mount{{Dir: s.dir, Path: "/data", Mode: mode}}
	return s.host.Call(t.Context(), s.module, host.Call{
		ID: fmt.Sprint("call", rand.Uint64()), Traits: host.Traits{Plugin: "sqlite"}, Tool: tool, Args: data, Policy: policy,
	})
}

// fails requires an error that has a text.
func (s *sqlite) fails(t *testing.T, tool string, args object, problem string) {
	t.Helper()
	r, err := s.call(t, tool, args)
	require.NoError(t, err)
	require.Equal(t, abi.ToolError, r.Kind, string(r.Value))
	require.Contains(t, r.Error, problem)
}

// rows requires the rows of an answer, as JSON.
func (s *sqlite) rows(t *testing.T, tool string, args object, want string) {
	t.Helper()
	r, err := s.call(t, tool, args)
	require.NoError(t, err)
	require.Equal(t, abi.Success, r.Kind, r.Error)
	var got struct{ Rows json.RawMessage }
	require.NoError(t, json.Unmarshal(r.Value, &got))
	require.JSONEq(t, want, string(got.Rows))
}

func TestQuery(t *testing.T) {
	s := open(t)
	for sql, want := range map[string]string{
		"SELECT 1, 1.5, NULL, 'ä', x'00ff'":                                                     `[[1,1.5,null,"ä",{"hex":"00ff","bytes":2}]]`,
		"SELECT 9007199254740993, 9e999, 1e300":                                                 `[["9007199254740993",null,1e300]]`,
		"SELECT length(printf('%.*c', 9000, 'x'))":                                              `[[9000]]`,
		"SELECT json_extract('{\"a\":[1,2]}', '$.a[1]'), sqrt(16)":                              `[[2,4]]`,
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 3) SELECT x FROM c": `[[1],[2],[3]]`,
		"SELECT date('2026-01-31', '+1 month')":                                                 `[["2026-03-03"]]`,
	} {
		s.rows(t, "query", object{"sql": sql}, want)
		s.rows(t, "query", object{"sql": sql, "database": "shop.db"}, want)
	}
	s.rows(t, "query", object{"sql": "SELECT ?, ?, ?, ?, ?", "params": []any{1, 2.5, "x'y", nil, true}}, `[[1,2.5,"x'y",null,1]]`)
	s.rows(t, "query", object{"sql": "SELECT @b || :a", "params": object{"a": "1", "b": "2"}}, `[["21"]]`)
	s.rows(t, "query", object{"sql": "SELECT value FROM json_each(?)", "params": []any{[]int{3, 4}}}, `[[3],[4]]`)
	s.rows(t, "query", object{"sql": "SELECT name FROM products WHERE name = ?", "database": "shop.db", "params": []any{"' OR 1=1 --"}}, `[]`)
	s.rows(t, "query", object{"setup": "CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f VALUES ('green tea'), ('coffee')", "sql": "SELECT x FROM f WHERE f MATCH 'tea'"}, `[["green tea"]]`)
	s.rows(t, "query", object{"sql": "SELECT now > '2020' FROM (SELECT datetime() AS now)"}, `[[1]]`)

	r, err := s.call(t, "query", object{"sql": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c", "limit": 2})
	require.NoError(t, err)
	require.JSONEq(t, `{"columns":["x"],"rows":[[1],[2]],"truncated":true}`, string(r.Value), "rows without end are cut")
	r, err = s.call(t, "query", object{"sql": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT printf('%.*c', 1000000, 'ä') FROM c", "limit": 1000})
	require.NoError(t, err)
	require.Less(t, len(r.Value), 120_000)
	require.Contains(t, string(r.Value), "bytes)")

	for sql, problem := range map[string]string{
		"SELEC 1":                       `near "SELEC": syntax error`,
		"":                              "there is no statement",
		"SELECT 1; SELECT 2":            "one statement at a time",
		"SELECT ?":                      "1 of 1 parameters have no value",
		"SELECT * FROM nix":             "no such table: nix",
		"SELECT x FROM products":        "no such column: x",
		"UPDATE products SET price = 1": "query only reads",
		"CREATE TABLE x (y)":            "query only reads",
	} {
		s.fails(t, "query", object{"sql": sql, "database": "shop.db"}, problem)
	}
	s.fails(t, "query", object{"sql": "SELECT 1", "params": []any{1}}, "too many parameters: the statement has 0")
	s.fails(t, "query", object{"sql": "SELECT :a", "params": object{"b": 1}}, "no parameter :b")
	s.fails(t, "query", object{"sql": "SELECT 1", "setup": "SELECT 1", "database": "shop.db"}, "without a database")
}

func TestExecute(t *testing.T) {
	s := open(t)
	in := func(sql string) object { return object{"database": "shop.db", "sql": sql} }
	s.rows(t, "execute", in("UPDATE products SET price = price * 2 WHERE id < 3 RETURNING id, price"), `[[1,4],[2,7]]`)
	s.rows(t, "execute", in("BEGIN; DELETE FROM products WHERE id = 3; COMMIT; -- done\n"), `[]`)
	s.rows(t, "execute", in("VACUUM"), `[]`)
	s.rows(t, "execute", in("PRAGMA user_version = 7"), `[]`)
	s.rows(t, "query", in("SELECT name, price FROM products"), `[["tea",4],["coffee",7]]`)

	s.fails(t, "execute", in("INSERT INTO products VALUES (9, 'x', 1); INSERT INTO products VALUES (9, 'y', 1)"), "UNIQUE constraint failed")
	s.rows(t, "query", in("SELECT count(*) FROM products"), `[[2]]`)
	s.fails(t, "execute", object{"database": "new.db", "sql": "CREATE TABLE t (x)"}, `there is no database new.db in /data: there are ["shop.db"]`)
	s.rows(t, "execute", object{"database": "new.db", "sql": "CREATE TABLE t (x)", "create": true}, `[]`)

	entries, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "neither locks nor journals are left: %v", entries)
}

// endless is a statement that does not end.
const endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"

// TestHostile: whatever a statement does, its call ends with an error that says why, and the database stays whole.
func TestHostile(t *testing.T) {
	s := open(t)
	outside := filepath.Join(t.TempDir(), "outside.db")
	for sql, problem := range map[string]string{
		"SELECT zeroblob(1000000000)":                                                   "too big",
		"SELECT hex(randomblob(100000000))":                                             "too big",
		"SELECT printf('%1000000000d', 1)":                                              "too big",
		"SELECT replace(printf('%.*c', 10000000, 'x'), 'x', printf('%.*c', 1000, 'y'))": "too big",
		"ATTACH '" + outside + "' AS o":                                                 "ATTACH is not allowed",
		"ATTACH '/data/shop.db' AS o":                                                   "ATTACH is not allowed",
		"VACUUM INTO '/data/copy.db'":                                                   "ATTACH is not allowed",
		"SELECT load_extension('/lib/x')":                                               "no such function",
		"SELECT writefile('x', 'y')":                                                    "no such function",
		"PRAGMA journal_mode = OFF":                                                     "PRAGMA journal_mode is not allowed",
		"PRAGMA locking_mode = EXCLUSIVE":                                               "PRAGMA locking_mode is not allowed",
		"PRAGMA writable_schema = ON":                                                   "PRAGMA writable_schema is not allowed",
		"PRAGMA hard_heap_limit = 0":                                                    "PRAGMA hard_heap_limit is not allowed",
		"SELECT 1" + strings.Repeat("+1", 500):                                          "Expression tree is too large",
		"SELECT 1" + strings.Repeat(" UNION SELECT 1", 500):                             "too many terms",
		"DELETE FROM sqlite_schema":                                                     "may not be modified",
	} {
		t.Run(sql[:min(len(sql), 40)], func(t *testing.T) {
			s.fails(t, "execute", object{"database": "shop.db", "sql": sql}, problem)
		})
	}
	s.fails(t, "query", object{"sql": "SELECT group_concat(printf('%.*c', 1000000, x)) OVER (ORDER BY x) FROM t", "setup": "CREATE TABLE t AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 1000) SELECT x FROM c"}, "out of memory")
	s.fails(t, "query", object{"setup": "CREATE TABLE t AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 1000) SELECT zeroblob(1000000) FROM c", "sql": "SELECT 1"}, "out of memory")
	for _, name := range []string{"../x.db", "/etc/passwd", "", "x?mode=rwc", strings.Repeat("x", 300)} {
		s.fails(t, "execute", object{"database": name, "sql": "SELECT 1", "create": true}, "invalid database")
	}
	require.NoFileExists(t, outside)

	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "no.db"), []byte(strings.Repeat("no database", 1000)), 0o600))
	s.fails(t, "query", object{"database": "no.db", "sql": "SELECT * FROM sqlite_schema"}, "file is not a database")

	s.fuel = 300_000_000 // else its own limit of time ends it
	_, err := s.call(t, "query", object{"sql": endless})
	require.ErrorIs(t, err, host.ErrFuel)
	s.fuel = 0
	s.rows(t, "query", object{"database": "shop.db", "sql": "PRAGMA integrity_check"}, `[["ok"]]`)
}

// TestDamaged: files that are damaged end in an error, or in rows.
func TestDamaged(t *testing.T) {
	s := open(t)
	good, err := os.ReadFile(filepath.Join(s.dir, "shop.db"))
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		bad := append([]byte(nil), good...)
		for range 1 + random.IntN(30) {
			bad[random.IntN(len(bad))] = byte(random.IntN(256))
		}
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "bad.db"), bad, 0o600))
		_, err := s.call(t, "query", object{"database": "bad.db", "sql": "SELECT *, length(name) FROM products ORDER BY price"})
		require.NoError(t, err)
		_, err = s.call(t, "execute", object{"database": "bad.db", "sql": "UPDATE products SET price = price + 1; PRAGMA integrity_check"})
		require.NoError(t, err)
		_, err = s.call(t, "schema", object{"database": "bad.db"})
		require.NoError(t, err)
	}
}

// TestTwoAtOnce: calls that change a database at once take turns, and calls that read meanwhile see whole transactions.
func TestTwoAtOnce(t *testing.T) {
	s := open(t)
	s.rows(t, "execute", object{"database": "bank.db", "create": true, "sql": "CREATE TABLE accounts (name TEXT, sum INTEGER); INSERT INTO accounts VALUES ('a', 1000), ('b', 0); CREATE TABLE log (x)"}, `[]`)
	const writers, each = 4, 10
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				r, err := s.call(t, "execute", object{"database": "bank.db", "sql": "UPDATE accounts SET sum = sum - 1 WHERE name = 'a'; UPDATE accounts SET sum = sum + 1 WHERE name = 'b'; INSERT INTO log VALUES (zeroblob(3000))"})
				if err != nil || r.Error != "" {
					t.Errorf("%v %s", err, r.Error)
				}
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for range each {
				r, err := s.call(t, "query", object{"database": "bank.db", "sql": "SELECT sum(sum), (SELECT sum FROM accounts WHERE name = 'b') - (SELECT count(*) FROM log) FROM accounts"})
				if busy := strings.HasSuffix(r.Error, ": try again"); err != nil || !busy && !strings.Contains(string(r.Value), "[[1000,0]]") {
					t.Errorf("%v %s %s", err, r.Error, r.Value)
				}
			}
		})
	}
	all.Wait()
	s.rows(t, "query", object{"database": "bank.db", "sql": "SELECT sum FROM accounts"}, fmt.Sprintf("[[%d],[%d]]", 1000-writers*each, writers*each))
	s.rows(t, "query", object{"database": "bank.db", "sql": "PRAGMA integrity_check"}, `[["ok"]]`)
}

// TestKilled: a call that is killed anywhere in a change leaves all of it or nothing.
func TestKilled(t *testing.T) {
	s := open(t)
	s.rows(t, "execute", object{"database": "k.db", "create": true, "sql": "CREATE TABLE t (x, pad); WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 100) INSERT INTO t SELECT 0, zeroblob(3500) FROM c"}, `[]`)
	r, err := s.call(t, "execute", object{"database": "k.db", "sql": "UPDATE t SET x = x + 1"})
	require.NoError(t, err)
	whole := int64(r.Usage.Fuel)

	cutOff, died := 0, 0
	for i := range int64(100) {
		s.fuel = whole*7/10 + i*whole*3/1000 // changes of the file come last
		_, err := s.call(t, "execute", object{"database": "k.db", "sql": "UPDATE t SET x = x + 1"})
		if err != nil {
			require.ErrorIs(t, err, host.ErrFuel)
			died++
		}
		s.fuel = 0

		locks, err := filepath.Glob(filepath.Join(s.dir, "k.db-lock-*"))
		require.NoError(t, err)
		for _, lock := range locks { // of which the time has passed
			require.NoError(t, os.Chtimes(lock, time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)))
		}
		if journal, err := os.ReadFile(filepath.Join(s.dir, "k.db-journal")); err == nil && len(journal) > 0 && journal[0] != 0 {
			cutOff++
			s.fails(t, "query", object{"database": "k.db", "sql": "SELECT 1"}, "a change of k.db was cut off: call execute once")
		}
		s.rows(t, "execute", object{"database": "k.db", "sql": "SELECT count(DISTINCT x) FROM t"}, `[[1]]`)
	}
	require.Positive(t, cutOff, "no call was killed while it wrote")
	t.Logf("%d calls were killed, %d while they wrote", died, cutOff)
	s.rows(t, "query", object{"database": "k.db", "sql": "PRAGMA integrity_check"}, `[["ok"]]`)
}

// TestLocked: a call waits for one that changes the database, and says so when it has waited in vain.
func TestLocked(t *testing.T) {
	s := open(t)
	lock := filepath.Join(s.dir, "shop.db-lock-30000-other")
	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	s.fails(t, "execute", object{"database": "shop.db", "sql": "SELECT 1"}, "shop.db is being changed by another call: try again")
	require.FileExists(t, lock)
	s.rows(t, "query", object{"database": "shop.db", "sql": "SELECT 1"}, `[[1]]`)

	require.NoError(t, os.Chtimes(lock, time.Now().Add(-time.Minute), time.Now().Add(-time.Minute)))
	s.rows(t, "execute", object{"database": "shop.db", "sql": "SELECT 1"}, `[[1]]`)
	require.NoFileExists(t, lock)
}
