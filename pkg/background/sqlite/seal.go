package sqlite

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolhost/toolhost/pkg/background"
)

// An extent says where the log of a terminal run is. Kept are the bytes
// [0,Head) and [Tail,End) of the stream; they are equal if nothing is missing.
type extent struct {
	Head int64 `json:"head"`
	Tail int64 `json:"tail"`
	End  int64 `json:"end"`
	// Whole: output.log is as it is meant to be. If not, it could not be
	// written, and the log is still in its segments.
	Whole bool `json:"whole,omitempty"`
}

// maxStream is more than any log will ever have.
const maxStream = 1 << 60

func (x extent) valid() bool {
	return 0 <= x.Head && x.Head <= x.Tail && x.Tail <= x.End && x.End <= maxStream
}

// size returns how long output.log is, if it is whole.
func (x extent) size() int64 {
	if x.Tail == x.Head {
		return x.End
	}
	return x.Head + int64(len(marker(x.Tail-x.Head))) + x.End - x.Tail
}

// marker returns the line that stands for omitted bytes.
func marker(omitted int64) string { return background.Output{Omitted: omitted}.String() }

// layout returns where the log is, for a run that is terminal.
func (x extent) layout(dir string) layout {
	l := layout{head: x.Head, tail: x.Tail, end: x.End}
	path := filepath.Join(dir, background.OutputLog)
	if x.Tail == x.Head {
		l.pieces = []piece{{path: path, n: x.End}}
		return l
	}
	l.pieces = []piece{{path: path, n: x.Head}, {path: path, off: x.Tail, n: x.End - x.Tail, at: x.size() - (x.End - x.Tail)}}
	return l
}

// seal makes the log durable in its last form and returns where it is. A log
// with segments is written anew, as output.log.new: rename puts it in its
// place once the end of the run is stored, so that a crash in between leaves
// the log as it was appended. If there is an error, the log stays as it is.
func (l *logFile) seal() (extent, error) {
	lay := l.untrimmed()
	now := extent{Head: lay.head, Tail: lay.tail, End: lay.end}
	lay.tail = max(lay.tail, lay.end-l.tailCap)
	if lay.head < lay.tail {
		if err := lay.trim(); err != nil {
			return now, err
		}
	}
	whole := extent{Head: lay.head, Tail: lay.tail, End: lay.end, Whole: true}
	if err := l.writeWhole(lay); err != nil {
		return now, err
	}
	return whole, nil
}

func (l *logFile) writeWhole(lay layout) error {
	if lay.end == l.head && len(l.segs) == 0 {
		// One that is there was left by a host that went down, and is not of this log.
		if err := os.Remove(filepath.Join(l.dir, outputNew)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncAs(filepath.Join(l.dir, background.OutputLog), l.head)
	}
	parts := []io.Reader{lay.reader(0, lay.head)}
	if lay.head < lay.tail {
		parts = append(parts, bytes.NewReader([]byte(marker(lay.tail-lay.head))))
	}
	parts = append(parts, lay.reader(lay.tail, lay.end))
	return writeFile(filepath.Join(l.dir, outputNew), io.MultiReader(parts...), true)
}

// reader returns [from,to) of the stream, which must be kept.
func (l *layout) reader(from, to int64) io.Reader {
	const step = 256 << 10
	return readerFunc(func(p []byte) (int, error) {
		if from >= to {
			return 0, io.EOF
		}
		data, err := l.bytes(from, min(to, from+min(step, int64(len(p)))))
		from += int64(len(data))
		return copy(p, data), err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// syncAs makes a file durable with its first n bytes; it makes an empty one if
// there is none.
func syncAs(path string, n int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return err
	}
	err = f.Truncate(n)
	if err == nil && n > 0 {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// writeFile makes a file of what r gives. If there is an error, there is none.
func writeFile(path string, r io.Reader, sync bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// publish puts the last form of the log in its place, and removes the segments.
func publish(dir string) error {
	err := os.Rename(filepath.Join(dir, outputNew), filepath.Join(dir, background.OutputLog))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is in its place
	}
	if err != nil {
		return err
	}
	return removeSegments(dir)
}

func removeSegments(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), tailPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

// writeEnvelope writes the file that says how a run ended, and returns how long
// it is meant to be.
func writeEnvelope(dir string, run background.Run) (int64, error) {
	data, err := run.ResultFile()
	if err != nil {
		return 0, err
	}
	path := filepath.Join(dir, background.ResultJSON)
	if err := writeFile(path+".new", bytes.NewReader(data), true); err != nil {
		return int64(len(data)), err
	}
	return int64(len(data)), os.Rename(path+".new", path)
}
