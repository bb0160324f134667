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

// DefaultCap is how many bytes of output a sink keeps by default.
const DefaultCap = 256 << 10

// Bounds of what a run says of itself, in characters.
const (
	maxDetail    = 200
	maxNarration = 300
	maxUnit      = 20
)

// stderrTag stands before each line that was written to the standard error.
const stderrTag = "[stderr] "

// A Sink receives what a run reports while it works: output, status and progress. It
// never blocks and never fails, and keeps a bounded part of the output: the first three
// quarters of its capacity and the last quarter.
//
// Standard output and standard error go into one log, in the order they were
// written. Lines of the standard error begin with "[stderr] ", once a line; a
// change of the stream in mid-line begins a new line. Bytes are kept raw.
//
// Make one with [NewSink]. A Sink is safe for concurrent use.
type Sink struct {
	stopping <-chan struct{}
	stop     func()

	mu       sync.Mutex
	buf      Buffer
	midLine  bool // the last line written is not ended
	stderr   bool // the last byte written came from the standard error
	closed   bool
	beat     engine.Beat
	unit     string                  // of the progress
	called   func() []byte           // what the work has called; nil: unknown
	before   engine.Cost             // of earlier attempts
	meter    func() engine.Cost      // what this attempt has used so far; nil: unknown, or it has ended
	changed  func()                  // called when there is something new, once until Fresh; nil: nobody listens
	dirty    bool                    // changed was called
	save     func(data []byte) error // nil: the work is not a run
	restored []byte
}

// NewSink returns a Sink that keeps outputCap bytes of output;
// [DefaultCap] if outputCap is not positive.
func NewSink(outputCap int) *Sink {
	if outputCap <= 0 {
		outputCap = DefaultCap
	}
	stopping, stop := context.WithCancel(context.Background())
	return &Sink{buf: NewBuffer(outputCap), stopping: stopping.Done(), stop: stop}
}

// Stdout returns a writer to the log. Its Write never fails.
func (s *Sink) Stdout() io.Writer { return sinkWriter{s, false} }

// Stderr returns a writer to the log that marks its lines with "[stderr] ".
// Its Write never fails.
func (s *Sink) Stderr() io.Writer { return sinkWriter{s, true} }

type sinkWriter struct {
	sink   *Sink
	stderr bool
}

func (w sinkWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		w.sink.update(func() { w.sink.write(p, w.stderr) })
	}
	return len(p), nil
}

// update changes what the sink has, unless it is closed, and says so to the
// function that Attach was given.
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

// write adds p, which is not empty, to the log.
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

// Status says in a few words what the run is doing. It is cleaned as by
// [Clean] and cut to 200 characters.
func (s *Sink) Status(message string) {
	message = Shorten(message, maxDetail)
	s.update(func() { s.beat.Detail = message })
}

// Narrate sets the status text for a person: what the run does, or did. It is cleaned
// and cut to 300 characters.
func (s *Sink) Narrate(sentence string) {
	sentence = Shorten(sentence, maxNarration)
	s.update(func() { s.beat.Narration = sentence })
}

// Unit names the unit of the numbers of Progress from now on, such as "files". It is
// cleaned and cut to 20 characters.
func (s *Sink) Unit(unit string) {
	unit = Shorten(unit, maxUnit)
	s.update(func() { s.unit = unit })
}

// Progress says how far the run is: done of total units; a total that is not
// positive is unknown. Message, which may be empty, is cut like a status.
// Numbers that JSON cannot express count as 0.
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

// Cost records the usage of the work in this attempt, at its end.
func (s *Sink) Cost(c engine.Cost) {
	s.update(func() { s.beat.Cost, s.meter = s.before.Add(c), nil })
}

// Meter gives the sink a function that returns what the work has used so far in this
// attempt. It must be safe for concurrent use, and fast: it is called whenever somebody
// reads the run.
func (s *Sink) Meter(soFar func() engine.Cost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter = soFar
}

// Calls gives the sink a function that returns the calls that the work has made so far,
// in JSON, at most [engine.MaxCalls] bytes: it is stored with each suspension of the
// run and with its end. It must be safe for concurrent use.
func (s *Sink) Calls(soFar func() []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = soFar
}

// Called returns the calls that the work has made so far, or nil. At the beginning it
// is what was stored last with the state that the run continues from.
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

// Now is Beat with what the work has used so far. The cost of a Beat changes only with
// [Sink.Cost], so that a run that only computes says nothing new.
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

// ErrNoRun means that the work of a sink is not a background run (yet), so that
// there is nothing to store a checkpoint with.
var ErrNoRun = errors.New("not a background run")

// Checkpoint stores what the work needs to continue from here, in place of an
// earlier checkpoint: at most 1 MiB. It is durable when Checkpoint returns nil.
// If the worker dies and the run is run again, [Sink.Restore] returns it. The
// error matches [ErrNoRun] if the work is not a run (yet), and [engine.ErrFenced]
// if it has lost its run.
func (s *Sink) Checkpoint(data []byte) error {
	s.mu.Lock()
	save := s.save
	s.mu.Unlock()

	err := ErrNoRun
	if save != nil {
		err = save(data)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Restore returns what an earlier attempt of the run stored last with
// [Sink.Checkpoint], or nil.
func (s *Sink) Restore() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.restored)
}

// Attach makes the sink that of a run, whose earlier attempts cost before: save
// stores checkpoints, and changed is called, without a lock held, when there is output
// or a beat that Fresh has not seen.
func (s *Sink) Attach(before engine.Cost, restored []byte, save func([]byte) error, changed func()) {
	s.update(func() {
		s.before, s.beat.Cost = before, before.Add(s.beat.Cost)
		s.restored, s.save, s.changed = restored, save, changed
	})
}

// Continue gives a new sink what an earlier one of the same run had: its log up to end,
// of which chunks are kept, and its last beat.
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

// Full reports whether the head is full: what is written from now on replaces what was
// written before.
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

// Note writes a line of the host into the log.
func (s *Sink) Note(line string) {
	s.update(func() {
		if s.midLine {
			s.buf.Append([]byte{'\n'})
		}
		s.midLine = false
		s.write([]byte("[system] "+line+"\n"), false)
	})
}

// Stopping returns a channel that is closed when the run is asked to stop: the
// work may still end in its own way, until its context is done.
func (s *Sink) Stopping() <-chan struct{} { return s.stopping }

// RequestStop closes the channel of [Sink.Stopping]. A background.Manager does it
// for the runs it stops.
func (s *Sink) RequestStop() { s.stop() }

// Beat returns the last status and progress, when output last came, and how
// many bytes of it.
func (s *Sink) Beat() engine.Beat {
	s.mu.Lock()
	defer s.mu.Unlock()

	b := s.beat
	b.OutputBytes = s.buf.Total()
	return b
}

// Tail returns up to max bytes of the log from offset on. If the log no longer
// has that offset, the chunk begins at the oldest byte kept after it. A
// negative offset counts from the end. A chunk never spans dropped bytes.
func (s *Sink) Tail(offset int64, max int) engine.Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Read(offset, max)
}

// Output returns what the sink has kept.
func (s *Sink) Output() Output {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Output()
}

// Close makes the sink ignore everything after the end of its run.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.save, s.changed = nil, nil
}
