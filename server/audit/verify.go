package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrBroken means that a log cannot be trusted: a line was changed, inserted or removed.
var ErrBroken = errors.New("the chain is broken")

// ErrNoLog is the error for a folder without a log file.
var ErrNoLog = errors.New("no audit log")

// LineError says which line breaks the chain. It matches [ErrBroken].
type LineError struct {
	File    string
	Line    int // from 1
	Problem string
}

func (e *LineError) Error() string {
	return fmt.Sprintf("%s:%d: %v: %s", e.File, e.Line, ErrBroken, e.Problem)
}

// Unwrap returns [ErrBroken].
func (e *LineError) Unwrap() error { return ErrBroken }

// Report is the result of [Verify].
type Report struct {
	Files int   `json:"files"`
	Lines int64 `json:"lines"`
	First int64 `json:"first"` // number of the first line kept: above 1 if older files were removed
	Head  Head  `json:"head"`
	Torn  int   `json:"torn,omitempty"` // number of incomplete lines that a crash left behind, and that are part of the chain
	Lost  int64 `json:"lost,omitempty"` // number of events that could not be written, according to the log
	// Known reports whether the log contains, unchanged, the line of the Head that was
	// passed to Verify.
	Known bool `json:"known,omitempty"`
}

// maxLine is the maximum size of a line, in bytes. It fits an event with the longest texts.
const maxLine = 256 << 10

// Verify reads the log in a folder and checks its chain. If known is a [Head] kept
// elsewhere, Verify also checks that the log contains this line, so that nothing up to it
// was removed or rebuilt. The error is a *[LineError], matches [ErrBroken] or [ErrNoLog],
// or is a read error.
func Verify(dir string, known Head) (Report, error) {
	files, err := checkedFiles(dir)
	if err != nil {
		return Report{}, err
	}
	v := verifier{known: known}
	for _, name := range files {
		if err := v.file(filepath.Join(dir, name)); err != nil {
			return v.Report, err
		}
		v.Files++
	}

	if known.Hash != "" && !v.Known {
		return v.Report, fmt.Errorf("%w: it has no line %d with the hash %s", ErrBroken, known.Seq, known.Hash)
	}
	return v.Report, nil
}

// checkedFiles is like filesOf, but refuses links and folders in place of files.
func checkedFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if firstOf(e.Name()) > 0 && !e.Type().IsRegular() {
			return nil, fmt.Errorf("%w: %s is not a regular file", ErrBroken, e.Name())
		}
	}

	files, err := filesOf(dir)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w: the folder has no file %sNUMBER%s", ErrNoLog, prefix, suffix)
	}
	return files, err
}

type verifier struct {
	Report
	known Head
}

func (v *verifier) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()

	if v.Lines == 0 {
		v.Head.Seq = firstOf(name) - 1
		v.First = v.Head.Seq + 1
	}
	lines := bufio.NewReaderSize(f, maxLine)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		broken := func(format string, args ...any) error {
			return &LineError{filepath.Base(name), n, fmt.Sprintf(format, args...)}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return broken("the line is longer than any of a log")
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		if problem := v.line(bytes.TrimSuffix(line, []byte("\n"))); problem != "" {
			return broken("%s", problem)
		}
		if n == 1 && firstOf(name) != v.Head.Seq {
			return broken("its number is not that of the file's name")
		}
	}
}

// line checks the next line.
func (v *verifier) line(line []byte) string {
	e, err := decode(line)
	switch {
	case err != nil:
		// It was cut off by a crash, if the next line has its hash.
		v.Torn++
		v.next(v.Head.Seq+1, line)
		return ""
	case e.Seq != v.Head.Seq+1:
		return fmt.Sprintf("it has the number %d, and %d is next", e.Seq, v.Head.Seq+1)
	case v.Lines == 0 && (e.Seq == 1) != (e.Prev == zero):
		return "the first line of a log has no line before it"
	case v.Lines > 0 && e.Prev != v.Head.Hash:
		return "it does not have the hash of the line before it: one of the two was changed"
	}

	if e.Kind == Lost {
		v.Lost += e.Count
	}
	v.next(e.Seq, line)
	return ""
}

func (v *verifier) next(seq int64, line []byte) {
	v.Lines++
	v.Head = Head{seq, hashOf(line)}
	if v.known == v.Head {
		v.Known = true
	}
}
