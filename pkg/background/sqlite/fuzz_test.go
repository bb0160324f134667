package sqlite

import (
	"database/sql/driver"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// FuzzRecord reads records as a damaged disk may give them.
func FuzzRecord(f *testing.F) {
	run := newRun("bg_a").Finish(engine.StatusFailed, engine.Beat{OutputBytes: 7, Progress: &engine.Progress{Done: 1}},
		engine.End{Error: &engine.RunError{Kind: "trap"}})
	run.Attempt = 1
	for _, s := range []stored{{Run: newRun("bg_a")}, {Run: run, Log: &extent{Head: 3, Tail: 5, End: 7, Whole: true}}} {
		record, err := s.encode()
		require.NoError(f, err)
		f.Add(record)
	}
	f.Add([]byte(`{"task_id":"bg_a","status":"failed","log":{"head":-1,"tail":9223372036854775807,"end":1}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, record []byte) {
		r, err := decode(record1(record))
		if err != nil {
			require.ErrorIs(t, err, engine.ErrNotFound)
			return
		}
		g := &logs{dir: t.TempDir(), problems: &problems{log: slog.New(slog.DiscardHandler), met: make(map[[2]string]bool)}}
		if r.Log != nil {
			for _, offset := range []int64{0, -1, -1 << 62, 1 << 62, r.Log.Head, r.Log.Tail, r.Log.End} {
				chunk, err := g.tail(r, offset, 100)
				require.NoError(t, err, "no log is there: all of it is missing")
				require.Empty(t, chunk.Data)
				require.LessOrEqual(t, chunk.Offset, chunk.End)
				part, err := r.Log.read(zeros{}, offset, 100)
				require.NoError(t, err)
				require.LessOrEqual(t, part.Offset+int64(len(part.Data)), part.End)
			}
		}
		again, err := r.encode()
		require.NoError(t, err)
		_, err = decode(record1(again))
		require.NoError(t, err, "what was read can be stored")
	})
}

// FuzzFolder reads the log in a folder with any files.
func FuzzFolder(f *testing.F) {
	f.Add("output.log=abc tail.3.3=def tail.3.6=ghi", int64(0))
	f.Add("output.log=abc tail.3.10=def tail.3.13=ghi", int64(5))
	f.Add("output.log=a tail.3.10=def tail.03.4=x tail.-1.0=y tail.9.1=z tail..=", int64(-4))
	f.Add("tail.0.1152921504606846976=x tail.5.0=xyz output.log.new=abc", int64(1))
	f.Fuzz(func(t *testing.T, files string, offset int64) {
		g := &logs{dir: t.TempDir()}
		run := newRun("bg_a")
		run.Attempt = 1
		dir := g.folder(run)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		for file := range strings.FieldsSeq(files) {
			name, content, _ := strings.Cut(file, "=")
			if !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) || name == "." {
				return
			}
			if os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) != nil {
				return
			}
		}
		log, err := g.find(run)
		require.NoError(t, err)
		before := log.size()
		require.Equal(t, logSize(dir), before)
		chunk, err := log.read(offset, 10)
		require.NoError(t, err)
		require.LessOrEqual(t, chunk.Offset+int64(len(chunk.Data)), chunk.End)
		x, err := log.seal()
		require.NoError(t, err)
		require.LessOrEqual(t, x.Head, x.Tail)
		require.LessOrEqual(t, x.Tail, x.End)
		removeLog(dir, engine.OutputLog)
		f, err := openSized(filepath.Join(dir, engine.OutputLog), x.size())
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		again, err := x.read(f, offset, 10)
		require.NoError(t, err)
		again.Attempt = chunk.Attempt
		require.Equal(t, chunk, again)
	})
}

// record1 is the row of a record.
func record1(record []byte) []driver.Value {
	return []driver.Value{int64(1), "bg_a", "s", int64(1), int64(1), record}
}

// zeros is a file of zeros, as long as its reader wants.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }
