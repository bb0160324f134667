package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// written writes events to a new log in small files, and returns its folder and head.
func written(t *testing.T, n int, cfg Config) (string, Head) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(dir, cfg)
	require.NoError(t, err)
	for i := range n {
		l.Append(Event{Kind: Call, Session: "ana/default", User: "ana", Tool: fmt.Sprint("tool", i), Outcome: "success", Fuel: int64(i)})
	}
	require.NoError(t, l.Close())
	return dir, l.Head()
}

func TestLog(t *testing.T) {
	dir, head := written(t, 20, Config{FileSize: 1 << 10, Files: -1})
	require.EqualValues(t, 21, head.Seq, "and the line of its end")
	r, err := Verify(dir, head)
	require.NoError(t, err)
	require.True(t, r.Known)
	require.Equal(t, Report{Files: r.Files, Lines: 21, First: 1, Head: head, Known: true}, r)
	require.Greater(t, r.Files, 3)

	l, err := Open(dir, Config{FileSize: 1 << 10, Files: -1})
	require.NoError(t, err)
	l.Append(Event{Kind: Stop, ID: "bg_a"})
	require.NoError(t, l.Close())
	l.Append(Event{Kind: Stop, ID: "too late"})
	r, err = Verify(dir, head)
	require.NoError(t, err)
	require.EqualValues(t, 23, r.Lines)

	found, err := Read(dir, Query{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, []Kind{Closed, Stop}, []Kind{found[0].Kind, found[1].Kind})
	found, err = Read(dir, Query{Kinds: []Kind{Call}, Session: "ana/default", Tool: "tool7"})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.EqualValues(t, 8, found[0].Seq)
	require.WithinDuration(t, time.Now(), found[0].At, time.Minute)
	found, err = Read(filepath.Join(dir, "none"), Query{})
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestOldFilesAreRemoved(t *testing.T) {
	dir, head := written(t, 40, Config{FileSize: 1 << 10, Files: 2})
	r, err := Verify(dir, head)
	require.NoError(t, err)
	require.Equal(t, 2, r.Files)
	require.Greater(t, r.First, int64(1))
}

// TestYoungFilesAreRemoved: the log and the operator say if a flood of events removes those
// of the same day.
func TestYoungFilesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, out := filepath.Join(t.TempDir(), "audit"), new(bytes.Buffer)
		l, err := Open(dir, Config{FileSize: 400, Files: 2, Logger: slog.New(slog.NewTextHandler(out, nil))})
		require.NoError(t, err)
		for range 8 {
			l.Append(Event{Kind: Call, Tool: "daily"})
			time.Sleep(young)
		}
		found, err := Read(dir, Query{})
		require.NoError(t, err)
		require.NotEqual(t, int64(1), found[len(found)-1].Seq, "files were removed")
		require.NotContains(t, fmt.Sprint(found), Rotated)
		require.NotContains(t, out.String(), "level=WARN")

		for range 12 {
			l.Append(Event{Kind: Call, Tool: "flood"})
		}
		require.NoError(t, l.Close())
		found, err = Read(dir, Query{Kinds: []Kind{Rotated}})
		require.NoError(t, err)
		require.NotEmpty(t, found)
		require.Positive(t, found[0].Count)
		require.Contains(t, out.String(), `level=WARN msg="the audit log was full, and events that are less than a day old were removed: raise audit.files or audit.file_size"`)
		_, err = Verify(dir, l.Head())
		require.NoError(t, err)
	})
}

// TestVerifyNothing: a folder without a log, or with something else in its place, is not in
// order.
func TestVerifyNothing(t *testing.T) {
	_, err := Verify(t.TempDir(), Head{})
	require.ErrorIs(t, err, ErrNoLog)
	require.EqualError(t, err, "no audit log: the folder has no file audit-NUMBER.jsonl")

	dir, head := written(t, 3, Config{})
	file := filepath.Join(dir, fileName(1))
	require.NoError(t, os.Rename(file, file+".old"))
	require.NoError(t, os.Symlink(file+".old", file))
	_, err = Verify(dir, head)
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorContains(t, err, fileName(1)+" is not a regular file")
}

func TestAppendAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Config{FileSize: 8 << 10, Files: -1})
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				l.Append(Event{Kind: Call})
			}
		})
	}
	all.Wait()
	require.NoError(t, l.Close())
	r, err := Verify(dir, l.Head())
	require.NoError(t, err)
	require.EqualValues(t, 321, r.Lines)
}

func TestNoLog(t *testing.T) {
	var l *Log
	l.Append(Event{Kind: Call})
	require.Zero(t, l.Head())
	require.NoError(t, l.Close())
}

// TestSearch: the pages of a search contain each event once, however little is read for
// each.
func TestSearch(t *testing.T) {
	dir, _ := written(t, 2000, Config{FileSize: 200 << 10, Files: -1})
	for name, test := range map[string]struct {
		query Query
		most  int64
		want  int
	}{
		"all, by pages":        {Query{Limit: 100}, 1 << 30, 2001},
		"all, by bytes":        {Query{}, 3000, 2001},
		"a kind":               {Query{Kinds: []Kind{Closed}}, 50_000, 1},
		"two kinds":            {Query{Kinds: []Kind{Closed, Call}, Limit: 7}, 50_000, 2001},
		"a tool, by bytes":     {Query{Tool: "tool77"}, 10_000, 1},
		"part of a name":       {Query{Tool: "tool7"}, 1 << 20, 1},
		"a session":            {Query{Session: "ana/default", Limit: 500}, 100_000, 2000},
		"no such session":      {Query{Session: "<b>"}, 100_000, 0},
		"one byte after other": {Query{Before: 60}, 1, 59},
	} {
		t.Run(name, func(t *testing.T) {
			before, seen := test.query.Before, int64(1<<60)
			found := 0
			for pages := 0; ; pages++ {
				events, next, err := Search(dir, test.query, test.most)
				require.NoError(t, err)
				for _, e := range events {
					require.Less(t, e.Seq, seen)
					seen = e.Seq
				}
				found += len(events)
				if next == 0 {
					break
				}
				require.True(t, before == 0 || next < before, "it advances")
				before, test.query.Before = next, next
			}
			require.Equal(t, test.want, found)
		})
	}
	none, next, err := Search(filepath.Join(dir, "none"), Query{}, 1)
	require.NoError(t, err)
	require.Empty(t, none)
	require.Zero(t, next)
}

// TestSearchReadsLittle: a page in the middle of a large file is found by halving, and what
// is not a line of a log neither ends a search nor takes more than its bound.
func TestSearchReadsLittle(t *testing.T) {
	dir, _ := written(t, 5000, Config{})
	counted := &countingReader{}
	file, err := os.Open(filepath.Join(dir, fileName(1)))
	require.NoError(t, err)
	defer file.Close()
	info, err := file.Stat()
	require.NoError(t, err)
	counted.ReaderAt = file
	end := endBefore(counted, info.Size(), 2500)
	_, seq := lineAfter(file, end-1)
	require.GreaterOrEqual(t, seq, int64(2500))
	require.Less(t, seq, int64(2500+chunk/100))
	require.Less(t, counted.bytes, int64(100<<10))

	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.Mkdir(garbage, 0o700))
	data := bytes.Repeat([]byte("x"), 3*maxLine)
	data = append(data, "\n\n{\n[]\nnull\n"...)
	require.NoError(t, os.WriteFile(filepath.Join(garbage, fileName(1)), data, 0o600))
	for _, most := range []int64{1, 1 << 30} {
		found, _, err := Search(garbage, Query{Before: 9}, most)
		require.NoError(t, err)
		require.Empty(t, found)
	}
}

// countingReader counts what is read.
type countingReader struct {
	io.ReaderAt
	bytes int64
}

func (r *countingReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, at)
	r.bytes += int64(n)
	return n, err
}

// TestForging: a change of the log is noticed unless all later lines are rebuilt, and
// rebuilding them is noticed by the head that was kept elsewhere.
func TestForging(t *testing.T) {
	lines := func(data []byte) [][]byte {
		return bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	}
	join := func(all ...[]byte) []byte { return bytes.Join(all, nil) }
	for name, c := range map[string]struct {
		forge func(data []byte) []byte
		want  string // the error; empty: only the head shows it
	}{
		"a changed text":   {func(d []byte) []byte { return bytes.Replace(d, []byte("tool3"), []byte("tool4"), 1) }, "audit-0000000000000000001.jsonl:5: the chain is broken: it does not have the hash of the line before it"},
		"a changed number": {func(d []byte) []byte { return bytes.Replace(d, []byte(`"seq":4`), []byte(`"seq":9`), 1) }, ":4: the chain is broken: it has the number 9, and 4 is next"},
		"a removed line":   {func(d []byte) []byte { l := lines(d); return join(append(l[:3:3], l[4:]...)...) }, ":4: the chain is broken: it has the number 5, and 4 is next"},
		"a repeated line":  {func(d []byte) []byte { l := lines(d); return join(append(l[:4:4], l[3:]...)...) }, ":5: the chain is broken: it has the number 4, and 5 is next"},
		"an inserted line": {func(d []byte) []byte {
			l := lines(d)
			return join(append(append(l[:3:3], []byte("{}\n")), l[3:]...)...)
		}, ":5: the chain is broken: it has the number 4, and 5 is next"},
		"two lines exchanged":  {func(d []byte) []byte { l := lines(d); l[3], l[4] = l[4], l[3]; return join(l...) }, ":4: the chain is broken: it has the number 5, and 4 is next"},
		"an unknown field":     {func(d []byte) []byte { return bytes.Replace(d, []byte(`"tool":"tool3"`), []byte(`"toll":"tool3"`), 1) }, "the chain is broken"},
		"a changed first line": {func(d []byte) []byte { return bytes.Replace(d, []byte("tool0"), []byte("toolx"), 1) }, ":2: the chain is broken"},
		"no first line":        {func(d []byte) []byte { return join(lines(d)[1:]...) }, ":1: the chain is broken: it has the number 2, and 1 is next"},
		"a garbled first line": {func(d []byte) []byte { l := lines(d); l[0] = []byte("\n"); return join(l...) }, ":2: the chain is broken: it does not have the hash of the line before it"},
		"a made up beginning":  {func(d []byte) []byte { return bytes.Replace(d, []byte(`"seq":1,`), []byte(`"seq":7,`), 1) }, ":1: the chain is broken: it has the number 7, and 1 is next"},
		"a line of a gigabyte": {func(d []byte) []byte { return join(d, bytes.Repeat([]byte("x"), 2*maxLine)) }, "longer than any"},
		"no end":               {func(d []byte) []byte { return join(lines(d)[:5]...) }, ""},
		"nothing":              {func([]byte) []byte { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, head := written(t, 8, Config{})
			file := filepath.Join(dir, fileName(1))
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, c.forge(data), 0o600))

			_, err = Verify(dir, Head{})
			if c.want == "" {
				require.NoError(t, err)
				_, err = Verify(dir, head)
				require.ErrorContains(t, err, "it has no line 9 with the hash")
			} else {
				require.ErrorContains(t, err, c.want)
			}
			require.ErrorIs(t, err, ErrBroken)
		})
	}

	t.Run("a chain made anew", func(t *testing.T) {
		dir, head := written(t, 8, Config{})
		require.NoError(t, os.RemoveAll(dir))
		l, err := Open(dir, Config{})
		require.NoError(t, err)
		for range 8 {
			l.Append(Event{Kind: Call})
		}
		require.NoError(t, l.Close())
		_, err = Verify(dir, Head{})
		require.NoError(t, err)
		_, err = Verify(dir, head)
		require.ErrorIs(t, err, ErrBroken)
	})
	t.Run("a file between others removed", func(t *testing.T) {
		dir, _ := written(t, 40, Config{FileSize: 1 << 10, Files: -1})
		files, err := filesOf(dir)
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, files[2])))
		_, err = Verify(dir, Head{})
		require.ErrorIs(t, err, ErrBroken)
	})
	t.Run("a file renamed", func(t *testing.T) {
		dir, _ := written(t, 40, Config{FileSize: 1 << 10, Files: -1})
		files, err := filesOf(dir)
		require.NoError(t, err)
		require.NoError(t, os.Rename(filepath.Join(dir, files[2]), filepath.Join(dir, strings.Replace(files[2], ".jsonl", "9.jsonl", 1))))
		_, err = Verify(dir, Head{})
		require.ErrorIs(t, err, ErrBroken)
	})
}

// TestTornLine: wherever the last line was cut, the log continues, and the chain includes
// what is left of it.
func TestTornLine(t *testing.T) {
	dir, _ := written(t, 3, Config{})
	file := filepath.Join(dir, fileName(1))
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	lastAt := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for end := lastAt; end <= len(whole); end++ {
		require.NoError(t, os.WriteFile(file, whole[:end], 0o600))
		_, err := Verify(dir, Head{})
		require.NoError(t, err, "before it continues")
		l, err := Open(dir, Config{})
		require.NoError(t, err)
		l.Append(Event{Kind: Call})
		require.NoError(t, l.Close())
		r, err := Verify(dir, l.Head())
		require.NoError(t, err, end)
		torn := 1
		if end == lastAt || end >= len(whole)-1 {
			torn = 0
		}
		require.Equal(t, torn, r.Torn, end)
	}

	for _, content := range []string{"", "x", "\n", "x\n"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		l, err := Open(dir, Config{})
		require.NoError(t, err, "%q", content)
		l.Append(Event{Kind: Call})
		require.NoError(t, l.Close())
	}
	require.NoError(t, os.WriteFile(file, []byte("x\ny\n"), 0o600))
	_, err = Open(dir, Config{})
	require.ErrorContains(t, err, "the last two lines are damaged")
}

// TestFullDisk: what cannot be written is counted and said once there is room again.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(dir, Config{})
	require.NoError(t, err)
	l.Append(Event{Kind: Call})
	l.mu.Lock()
	file := l.file
	l.file, err = os.Open(filepath.Join(dir, fileName(1))) // which cannot be written to
	l.mu.Unlock()
	require.NoError(t, err)
	for range 3 {
		l.Append(Event{Kind: Call})
	}
	l.mu.Lock()
	require.NoError(t, errors.Join(l.file.Close()))
	l.file = file
	l.mu.Unlock()
	l.Append(Event{Kind: Call})
	require.NoError(t, l.Close())

	r, err := Verify(dir, l.Head())
	require.NoError(t, err)
	require.EqualValues(t, 3, r.Lost)
	require.EqualValues(t, 4, r.Lines)
	found, err := Read(dir, Query{Kinds: []Kind{Lost}})
	require.NoError(t, err)
	require.EqualValues(t, 3, found[0].Count)
	require.NotContains(t, found[0].Reason, dir)
}

// TestLongTexts: texts that others choose cannot make a line too long.
func TestLongTexts(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Config{})
	require.NoError(t, err)
	long := strings.Repeat("\x00ä\n", maxLine)
	names := make([]string, 1000)
	for i := range names {
		names[i] = "plugin"
	}
	l.Append(Event{Kind: Call, Session: long, User: long, By: long, ID: long, Parent: long, Tool: long, Plugin: long, Digest: long, Signer: long, Action: long, Outcome: long, Code: long, Reason: long, Method: long, Host: long, Names: names})
	l.Append(Event{Kind: Call, Tool: "a\nb\xff"})
	require.NoError(t, l.Close())
	r, err := Verify(dir, Head{})
	require.NoError(t, err)
	require.EqualValues(t, 3, r.Lines)
}

func FuzzVerify(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "audit")
	l, err := Open(dir, Config{})
	require.NoError(f, err)
	l.Append(Event{Kind: Call, Tool: "a"})
	require.NoError(f, l.Close())
	data, err := os.ReadFile(filepath.Join(dir, fileName(1)))
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte("{}\n\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, fileName(1)), data, 0o600))
		_, before := Verify(dir, Head{})
		all, err := Read(dir, Query{})
		require.NoError(t, err)
		for _, q := range []Query{{Before: 2}, {Tool: "a", Limit: 1}} {
			found, next, err := Search(dir, q, 10)
			require.NoError(t, err)
			require.LessOrEqual(t, len(found), len(all))
			require.True(t, q.Before == 0 || next < q.Before)
		}
		l, err := Open(dir, Config{})
		if err != nil {
			return
		}
		l.Append(Event{Kind: Call})
		require.NoError(t, l.Close())
		if before == nil { // what was in order stays in order
			_, err := Verify(dir, l.Head())
			require.NoError(t, err)
		}
	})
}

// BenchmarkAppend measures the cost of a line.
func BenchmarkAppend(b *testing.B) {
	l, err := Open(b.TempDir(), Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	e := Event{Kind: Call, Session: "default", ID: "call_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", Tool: "files_read", Plugin: "files", Digest: strings.Repeat("a", 64), Outcome: "success", Fuel: 123456, Millis: 3}
	for b.Loop() {
		l.Append(e)
	}
}
