package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// DefaultCap is the default capacity of a sink, in bytes.
const DefaultCap = 256 << 10

// Limits of a run's reports, in characters.
const (
	maxDetail    = 200
	maxNarration = 300
	maxUnit      = 20
)

// stderrTag marks each line of the standard error.
const stderrTag = "[stderr] "

// A Sink receives the reports of a run while it works: output, status and progress. It
// never blocks and never fails, and keeps a bounded part of the output: the first three
// quarters of its capacity and the last quarter.
//
// Standard output and standard error go into one log, in the order they were written.
// Each line of the standard error begins with "[stderr] "; if the stream changes in
// mid-line, a new line begins. Bytes are kept as they were written.
//
// Make one with [NewSink]. A Sink is safe for concurrent use.
type Sink struct {
	stopping chan struct{}
	stop     sync.Once // closes stopping

	mu       sync.Mutex
	buf      Buffer
	midLine  bool // the last line is not complete
	stderr   bool // the last byte came from the standard error
	closed   bool
	beat     engine.Beat
	unit     string             // unit of the progress
	called   func() []byte      // the calls of the work; nil: unknown
	before   engine.Cost        // cost of earlier attempts
	meter    func() engine.Cost // usage of this attempt so far; nil: unknown, or the attempt has ended
	changed  func()             // called once when there is something new, until Fresh; nil: nobody listens
	dirty    bool               // changed was called
	save     Save               // nil: the work is not a run
	restored []byte
}

// NewSink returns a Sink that keeps outputCap bytes of output;
// [DefaultCap] if outputCap is not positive.
func NewSink(outputCap int) *Sink {
	if outputCap <= 0 {
		outputCap = DefaultCap
	}
	return &Sink{buf: NewBuffer(outputCap), stopping: make(chan struct{})}
}

// Stdout returns a writer that writes to the log. Its Write never fails.
func (s *Sink) Stdout() io.Writer { return (*stdout)(s) }

// Stderr returns a writer that writes to the log and marks each line with "[stderr] ".
// Its Write never fails.
func (s *Sink) Stderr() io.Writer { return (*stderr)(s) }

type (
	stdout Sink
	stderr Sink
)

func (w *stdout) Write(p []byte) (int, error) { return (*Sink)(w).log(p, false) }
func (w *stderr) Write(p []byte) (int, error) { return (*Sink)(w).log(p, true) }

func (s *Sink) log(p []byte, stderr bool) (int, error) {
	if len(p) > 0 {
		s.update(func() { s.write(p, stderr) })
	}
	return len(p), nil
}

// update changes the sink's data, unless it is closed, and calls the function changed
// that Attach was given.
func (s *Sink) update(change func()) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}

	change()
	changed := s.changed
	if s.dirty {
		changed = nil
	}
	s.dirty = s.dirty || changed != nil
	s.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// write adds p, which must not be empty, to the log.
func (s *Sink) write(p []byte, stderr bool) {
	s.beat.LastOutputAt = time.Now()

	if s.midLine && s.stderr != stderr {
		s.buf.Append([]byte{'\n'})
		s.midLine = false
	}

	s.stderr = stderr
	if !stderr {
		s.buf.Append(p)
		s.midLine = p[len(p)-1] != '\n'
		return
	}

	for line := range bytes.Lines(p) {
		if !s.midLine {
			s.buf.Append([]byte(stderrTag))
		}
		s.buf.Append(line)
		s.midLine = line[len(line)-1] != '\n'
	}
}

// Status describes the run's current activity in a few words. message is cleaned by
// [Clean] and cut to 200 characters.
func (s *Sink) Status(message string) {
	message = Shorten(message, maxDetail)
	s.update(func() { s.beat.Detail = message })
}

// Narrate sets the status text for a person: what the run is doing, or did. sentence is
// cleaned and cut to 300 characters.
func (s *Sink) Narrate(sentence string) {
	sentence = Shorten(sentence, maxNarration)
	s.update(func() { s.beat.Narration = sentence })
}

// Unit sets the unit of later Progress numbers, such as "files". unit is cleaned and
// cut to 20 characters.
func (s *Sink) Unit(unit string) {
	unit = Shorten(unit, maxUnit)
	s.update(func() { s.unit = unit })
}

// Progress reports how far the run is: done out of total units. A total that is not
// positive means unknown. message, which may be empty, is cut like a status. Numbers
// that JSON cannot express are treated as 0.
func (s *Sink) Progress(done, total float64, message string) {
	p := &engine.Progress{Done: finite(done), Total: finite(total), Message: Shorten(message, maxDetail)}
	s.update(func() {
		p.Unit = s.unit
		s.beat.Progress = p
	})
}

// finite returns f, or 0 if it is negative, infinite or not a number.
func finite(f float64) float64 {
	if f > 0 && !math.IsInf(f, 0) {
		return f
	}
	return 0
}

// Cost records the usage of the work in this attempt, when the attempt ends.
func (s *Sink) Cost(c engine.Cost) {
	s.update(func() { s.beat.Cost, s.meter = s.before.Add(c), nil })
}

// Meter gives the sink a function that returns the usage of the work so far in this
// attempt. The function must be safe for concurrent use, and fast: it is called each
// time the run is read.
func (s *Sink) Meter(soFar func() engine.Cost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter = soFar
}

// Calls gives the sink a function that returns the work's calls so far, in JSON, at
// most [engine.MaxCalls] bytes. They are stored with each suspension of the run and
// with its end. The function must be safe for concurrent use.
func (s *Sink) Calls(soFar func() []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = soFar
}

// Called returns the work's calls so far, or nil. In a continued run they begin with
// the calls stored with its state.
func (s *Sink) Called() []byte {
	s.mu.Lock()
	called := s.called
	s.mu.Unlock()

	if called == nil {
		return nil
	}
	data := called()
	if len(data) > engine.MaxCalls {
		return nil
	}
	return data
}

// Now is like Beat, but includes the usage so far. The cost of a Beat changes only with
// [Sink.Cost] and [Sink.Checkpoint], so a run that only computes reports nothing new.
func (s *Sink) Now() engine.Beat {
	b := s.Beat()
	s.mu.Lock()
	meter, before := s.meter, s.before
	s.mu.Unlock()

	if meter != nil {
		b.Cost = before.Add(meter())
	}
	return b
}

// ErrNoRun means that the work of a sink is not a background run (yet), so it
// cannot store a checkpoint.
var ErrNoRun = errors.New("not a background run")

// Save stores the data of a checkpoint.
type Save = func(ctx context.Context, data []byte) error

// Checkpoint stores the data that the work needs to continue from here, at most 1 MiB, in
// place of any earlier checkpoint. The data is durable when Checkpoint returns nil. If the
// worker dies and the run is run again, [Sink.Restore] returns the data, and the cost of
// the run includes the usage up to this checkpoint.
//
// While the disk is full or the storage cannot be reached, Checkpoint waits until the data
// is stored, ctx is done or the run is stopped. The error matches [ErrNoRun] if the work
// is not a run (yet), and [engine.ErrFenced] if this worker has lost the run.
func (s *Sink) Checkpoint(ctx context.Context, data []byte) error {
	s.mu.Lock()
	save := s.save
	s.mu.Unlock()
	if save == nil {
		return fmt.Errorf("checkpoint: %w", ErrNoRun)
	}

	cost := s.Now().Cost
	s.update(func() {
		if s.meter != nil { // else the attempt has ended, and its cost is known
			s.beat.Cost = cost
		}
	})
	if err := save(ctx, data); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Restore returns the data of the last checkpoint of an earlier attempt of the run, or
// nil: see [Sink.Checkpoint].
func (s *Sink) Restore() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.restored)
}

// Attach connects the sink to a run. before is the cost of earlier attempts, and
// restored is their last checkpoint. save stores checkpoints. changed is called,
// without a lock held, when there is output or a beat that Fresh has not recorded.
func (s *Sink) Attach(before engine.Cost, restored []byte, save Save, changed func()) {
	s.update(func() {
		s.before, s.beat.Cost = before, before.Add(s.beat.Cost)
		s.restored, s.save, s.changed = restored, save, changed
	})
}

// Continue restores in a new sink what an earlier one had of the same run: its log up
// to end, of which chunks are kept, and its last beat.
func (s *Sink) Continue(beat engine.Beat, end int64, chunks []engine.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, c := range chunks {
		s.buf.AppendAt(c.Offset, c.Data)
		s.midLine = len(c.Data) > 0 && c.Data[len(c.Data)-1] != '\n'
	}
	s.buf.AppendAt(end, nil)
	s.beat = beat
	s.beat.Cost = engine.Cost{} // Attach adds it
}

// Full reports whether the head of the log is full: new output then replaces earlier
// output.
func (s *Sink) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.sealed
}

// Fresh records that everything so far is being stored.
func (s *Sink) Fresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = false
}

// Note writes a line from the host to the log.
func (s *Sink) Note(line string) {
	s.update(func() {
		if s.midLine {
			s.buf.Append([]byte{'\n'})
		}
		s.midLine = false
		s.write([]byte("[system] "+line+"\n"), false)
	})
}

// Stopping returns a channel that is closed when the run is asked to stop. The
// work may still end in its own way, until its context is done.
func (s *Sink) Stopping() <-chan struct{} { return s.stopping }

// RequestStop closes the channel of [Sink.Stopping]. A background.Manager calls
// it for the runs that it stops.
func (s *Sink) RequestStop() { s.stop.Do(func() { close(s.stopping) }) }

// Beat returns the last status and progress, the time of the last output,
// and the number of bytes of output.
func (s *Sink) Beat() engine.Beat {
	s.mu.Lock()
	defer s.mu.Unlock()

	b := s.beat
	b.OutputBytes = s.buf.Total()
	return b
}

// Tail returns up to max bytes of the log from offset on. If the byte at that offset
// was dropped, the chunk begins at the first kept byte after it. A negative offset
// counts from the end. A chunk never spans dropped bytes.
func (s *Sink) Tail(offset int64, max int) engine.Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Read(offset, max)
}

// Output returns the kept output.
func (s *Sink) Output() Output {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Output()
}

// Close makes the sink ignore everything that it receives after the end of its run.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.save, s.changed = nil, nil
}
