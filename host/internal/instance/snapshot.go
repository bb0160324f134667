package instance

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Snapshot is the state of an instance after start-up. Each call that starts from it finds
// exactly that state. A module has one snapshot for each view: for all calls in which it
// can see the same things while it starts up.
type Snapshot struct {
	account *Account
	view    string
	Image   *Image // initial content of the memories of instances
	Fuel    int64  // fuel used by start-up
	globals []uint64
	env     Env

	// The mutex of the ledger guards the rest.
	users     int         // calls that use it, and instances that started from it
	idle      []*Instance // clean instances, the last used one at the end
	used      int64       // when a call last used it, as a number of uses
	forgotten bool        // calls no longer find it
}

// Env is the state of an instance outside its memory and globals: a fixed
// clock and fixed random numbers.
type Env struct {
	Now    int64 // nanoseconds on the fixed clock
	Random rand.ChaCha8
}

// Limits on the number of snapshots of a module, which has one view per policy of its
// tools, and of a host. An image may hold an open file.
const (
	maxSnapshots     = 16
	maxHostSnapshots = 256
)

// ErrTooLarge means that a module has no snapshot because the copy would be too large.
var ErrTooLarge = errors.New("a copy of what it starts with does not fit into the memory of this host")

// Snapshot returns the snapshot of a view, in use by the caller until Release, or nil
// if there is none.
func (a *Account) Snapshot(view string) *Snapshot {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()

	s := a.snapshots[view]
	if s != nil {
		s.users++
		l.uses++
		s.used = l.uses
	}
	return s
}

// Capture saves the state of an instance as the snapshot of a view. From then on the
// instance counts as started from that snapshot. The parameter fuel is the fuel that its
// start-up used. Capture does nothing if there is currently no memory for it, or if there
// already is a snapshot. The error ErrTooLarge changes nothing either; after any other
// error the instance must not be used.
func (a *Account) Capture(view string, in *Instance, fuel int64) error {
	l, m := a.ledger, in.Memory
	if s := a.Snapshot(view); s != nil { // another call has captured meanwhile
		s.Release()
		return nil
	}
	data, at := trim(m.room[:m.size])
	if int64(len(data))+int64(m.size+a.Overhead) > l.Memory {
		return ErrTooLarge
	}
	image, err := a.NewImage(data, at, m.size)
	if err != nil {
		return nil
	}
	s := &Snapshot{account: a, view: view, Image: image, Fuel: fuel, env: *in.Env, users: 1}
	for _, g := range in.globals {
		s.globals = append(s.globals, g.Get())
	}

	l.mu.Lock()
	if a.snapshots[view] != nil {
		l.mu.Unlock()
		image.Close()
		return nil
	}
	a.snapshots[view] = s
	l.snapshots = append(l.snapshots, s)
	l.uses++
	s.used = l.uses
	l.mu.Unlock()

	for old := a.excess(); old != nil; old = a.excess() { // including those of concurrent calls
		old.drop()
	}
	if m.mapped && !image.covers(m.image) {
		s.Release()
		return nil
	}
	in.Snapshot, m.image = s, image
	if m.mapped && (discard(m.room[:m.paid]) != nil || !image.apply(m.room, true)) { // only pages with data remain
		return errors.New("the memory of the instance cannot be mapped")
	}
	return nil
}

// excess returns a snapshot that exceeds a limit, or nil.
func (a *Account) excess() *Snapshot {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(a.snapshots) > maxSnapshots:
		return l.leastRecent(func(s *Snapshot) bool { return s.account == a })
	case len(l.snapshots) > maxHostSnapshots:
		return l.leastRecent(func(*Snapshot) bool { return true })
	}
	return nil
}

// Warm returns the last used warm instance of the snapshot, or nil if there is none or the
// client may not hold it. The instance takes over the caller's use of the snapshot. Warm
// may be called on nil.
func (s *Snapshot) Warm(p Payer) *Instance {
	if s == nil {
		return nil
	}
	l := s.account.ledger
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(s.idle) == 0 {
		return nil
	}
	in := s.idle[len(s.idle)-1]
	if !in.Memory.lend(p) {
		return nil
	}
	l.remove(in)
	s.users--
	return in
}

// Release ends the use of a snapshot. It does nothing for nil.
func (s *Snapshot) Release() {
	if s == nil {
		return
	}

	l := s.account.ledger
	l.mu.Lock()
	s.users--
	last := s.forgotten && s.users == 0
	l.mu.Unlock()
	if last {
		s.Image.Close()
	}
}

// drop removes a snapshot from the ledger. Calls that use it keep it.
func (s *Snapshot) drop() {
	l := s.account.ledger
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	l.drop(s)
}

// drop does the work of [Snapshot.drop]. l.reclaiming must be held.
func (l *Ledger) drop(s *Snapshot) {
	l.mu.Lock()
	if s.forgotten {
		l.mu.Unlock()
		return
	}
	s.forgotten = true
	s.users++ // until its instances are discarded
	delete(s.account.snapshots, s.view)
	l.snapshots = slices.DeleteFunc(l.snapshots, func(other *Snapshot) bool { return other == s })
	idle := slices.Clone(s.idle)
	for _, in := range idle {
		l.remove(in)
	}
	l.mu.Unlock()

	for _, in := range idle {
		in.Discard()
	}
	s.Release()
}

// trim cuts the zeros off both ends of a memory, and returns the offset of the rest.
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

// Close frees the snapshots of a module. No call may be running.
func (a *Account) Close() {
	a.ledger.mu.Lock()
	all := slices.Collect(maps.Values(a.snapshots))
	a.ledger.mu.Unlock()
	for _, s := range all {
		s.drop()
	}
}
