package instance

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Snapshot is the state of an instance after it has started up. Each call that
// starts from it finds exactly that.
//
// There is one for each view of a module: what it can see while it starts up. It
// is taken when the first call needs it, by an instance of its own, and calls that
// come in the meantime wait. A module takes one at a time, even after nobody waits
// for it any more: making an instance cannot be cut short, and it holds no slot.
type Snapshot struct {
	account *Account
	view    string
	stop    context.CancelFunc // ends taking it

	Taken   chan struct{} // closed when what follows is known, and does not change
	Image   *Image        // that memories start with; nil: calls start up themselves
	Fuel    int64         // that starting up used
	globals []uint64
	env     Env

	// The mutex of the ledger guards the rest.
	taking    bool
	users     int           // calls that have it or wait for it, and instances that started from it
	idle      []*Instance   // those that are clean, the one used last at the end
	recent    *list.Element // in the ledger, once it is taken
	forgotten bool          // no call finds it any more
}

// Env is the state of an instance outside its memory and globals: a clock that
// stands still, and random numbers that are not random.
type Env struct {
	Now    int64 // nanoseconds
	Random rand.ChaCha8
}

// Bounds on snapshots, with and without an image: of a module, whose calls have
// as many views as the operator gave its tools policies, and of a host. An image
// may have an open file.
const (
	maxSnapshots     = 16
	maxHostSnapshots = 256
)

// Why no snapshot is taken. One of another error is not tried again.
var (
	ErrAgain    = errors.New("no snapshot can be taken now") // for a reason that passes
	ErrTooLarge = errors.New("a copy of what it starts with does not fit into the memory of this host")
)

// Snapshot returns the snapshot of a view for the caller to use, and to Release.
// If there is none it begins to take one: take, which begin returns before Snapshot
// does, starts the module up and calls Capture, until its context ends.
func (a *Account) Snapshot(view string, begin func() (take func(context.Context, *Snapshot) error)) *Snapshot {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()

	if s := a.snapshots[view]; s != nil {
		s.users++
		if s.recent != nil {
			l.snapshots.MoveToBack(s.recent)
		}
		return s
	}

	ctx, stop := context.WithCancel(context.Background())
	s := &Snapshot{account: a, view: view, stop: stop, Taken: make(chan struct{}), taking: true, users: 1}
	a.snapshots[view] = s
	take := begin()
	a.taking.Go(func() {
		defer stop()
		err := ErrAgain
		select {
		case a.priming <- struct{}{}:
			err = take(ctx, s)
			<-a.priming
		case <-ctx.Done():
		}
		s.settle(err)
	})

	return s
}

// settle ends the taking of a snapshot.
func (s *Snapshot) settle(err error) {
	l := s.account.ledger
	l.mu.Lock()
	s.taking = false
	switch {
	case s.forgotten:
	case errors.Is(err, ErrAgain):
		l.forget(s)
	default:
		s.recent = l.snapshots.PushBack(s)
	}

	s.users++ // until it is released below
	excess := l.excess(s.account)
	l.mu.Unlock()

	for _, old := range excess {
		old.forget()
	}
	close(s.Taken)
	s.Release()
}

// Warm returns an instance of the snapshot that waits, the one used last, or nil.
// The instance uses the snapshot in place of the caller.
func (s *Snapshot) Warm() *Instance {
	l := s.account.ledger
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(s.idle) == 0 {
		return nil
	}
	in := s.idle[len(s.idle)-1]
	l.remove(in)
	s.users--
	return in
}

// unused reports whether it is only kept to be quick. The mutex of the ledger must
// be held.
func (s *Snapshot) unused() bool { return s.users == len(s.idle) }

// bytes is the memory of its image.
func (s *Snapshot) bytes() int64 {
	if s.Image == nil {
		return 0
	}
	return int64(len(s.Image.bytes))
}

// Release ends the use of a snapshot. Once nobody waits for it any more, it is no
// longer taken. It does nothing for nil.
func (s *Snapshot) Release() {
	if s == nil {
		return
	}

	l := s.account.ledger
	l.mu.Lock()
	s.users--
	if s.taking && s.users == 0 && !s.forgotten {
		l.forget(s)
		s.stop()
	}
	last := s.forgotten && !s.taking && s.users == 0
	l.mu.Unlock()
	if last && s.Image != nil {
		s.Image.Close()
	}
}

// forget takes a snapshot out of the ledger. Calls that have it keep it.
func (s *Snapshot) forget() {
	l := s.account.ledger
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()

	l.mu.Lock()
	if s.forgotten {
		l.mu.Unlock()
		return
	}
	idle := l.forget(s)
	s.users++ // until its instances are discarded
	l.mu.Unlock()

	for _, in := range idle {
		in.Discard()
	}
	s.Release()
}

// Capture takes the state of an instance that has used fuel to start up. Its error
// matches ErrAgain, or says why calls cannot have a snapshot.
func (s *Snapshot) Capture(in *Instance, fuel int64) error {
	data, at := trim(in.Memory.room[:in.Memory.size])
	if int64(len(data))+int64(in.Memory.size+in.account.Overhead) > s.account.ledger.Memory {
		return ErrTooLarge
	}

	image, err := s.account.NewImage(data, at, in.Memory.size)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAgain, err)
	}
	s.Image, s.env, s.Fuel = image, *in.Env, fuel
	for _, g := range in.globals {
		s.globals = append(s.globals, g.Get())
	}
	return nil
}

// trim cuts the zeros at both ends off a memory, and says where the rest is.
func trim(memory []byte) (data []byte, at uint64) {
	var zeros [wasmbin.PageSize]byte
	begin, end := 0, len(memory)
	for begin < end && bytes.Equal(memory[begin:begin+len(zeros)], zeros[:]) {
		begin += len(zeros)
	}
	for begin < end && bytes.Equal(memory[end-len(zeros):end], zeros[:]) {
		end -= len(zeros)
	}

	data = bytes.TrimRight(memory[begin:end], "\x00")
	rest := bytes.TrimLeft(data, "\x00")
	return rest, uint64(begin + len(data) - len(rest))
}

// Close gives back what the snapshots of a module hold. No call may be running.
func (a *Account) Close() {
	a.ledger.mu.Lock()
	var all []*Snapshot
	for _, s := range a.snapshots {
		all = append(all, s)
	}
	a.ledger.mu.Unlock()

	for _, s := range all {
		s.stop()
		s.forget()
	}
	a.taking.Wait()
}
