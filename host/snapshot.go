package host

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// snapshot is the state of an instance after it has started up. Each call that
// starts from it finds exactly that.
//
// There is one for each view of a module. It is taken when the first call needs
// it, by an instance of its own (see take), and calls that come in the meantime
// wait. A module takes one at a time, also where nobody waits for it any more:
// making an instance cannot be cut short, and no place is held for it.
type snapshot struct {
	module *Module
	view   string
	stop   context.CancelFunc // ends taking it
	taken  chan struct{}      // closed when what follows is known, and does not change

	image   *image // nil: there is none, and calls start up themselves
	globals []uint64
	fuel    int64 // what starting up used: each call pays it
	now     int64 // of the clock that stands
	random  rand.ChaCha8

	// What follows is guarded by the mutex of the pool.
	taking    bool
	users     int           // calls that have it or wait for it, and instances that started from it
	idle      []*instance   // those that are clean, the one used last at the end
	recent    *list.Element // in the pool, once it is taken
	forgotten bool          // no call finds it any more
}

// Bounds on snapshots, with and without an image: of a module, whose calls have
// as many views as the operator gave its tools policies, and of a host. An image
// may have an open file.
const (
	maxSnapshots     = 16
	maxHostSnapshots = 256
)

// snapshot returns the snapshot the call starts from, which the caller releases.
// It is nil if the call has to start up itself.
func (c *call) snapshot() (*snapshot, error) {
	view := c.view()
	if view == "" {
		return nil, nil
	}
	s := c.find(view)
	select {
	case <-s.taken:
	default:
		if err := c.await(s.taken); err != nil {
			s.release()
			return nil, &ended{err}
		}
	}
	if s.image == nil {
		s.release()
		return nil, nil
	}
	return s, nil
}

// find returns the snapshot of a view for the caller to use. If there is none it
// begins to take one.
func (c *call) find(view string) *snapshot {
	m, p := c.module, &c.host.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := m.snapshots[view]; s != nil {
		s.users++
		if s.recent != nil {
			p.snapshots.MoveToBack(s.recent)
		}
		return s
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &snapshot{module: m, view: view, stop: stop, taken: make(chan struct{}), taking: true, users: 1}
	m.snapshots[view] = s
	plugin, policy := c.Plugin, c.Policy
	policy.Env, policy.Files = maps.Clone(policy.Env), slices.Clone(policy.Files) // the caller's once its call ends
	policy.Fuel, policy.Timeout = min(policy.Fuel, startFuel), DefaultTimeout
	m.taking.Go(func() {
		defer stop()
		s.take(ctx, plugin, policy)
	})
	return s
}

// warm returns an instance of a snapshot that waits, the one used last, or nil.
// The instance uses the snapshot in place of the caller.
func (s *snapshot) warm() *instance {
	p := s.module.account.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	in := s.idle[len(s.idle)-1]
	p.remove(in)
	s.users--
	return in
}

// unused reports whether it is only kept to be quick. The caller holds the mutex
// of the pool.
func (s *snapshot) unused() bool { return s.users == len(s.idle) }

// bytes is the memory of its image.
func (s *snapshot) bytes() int64 {
	if s.image == nil {
		return 0
	}
	return int64(len(s.image.bytes))
}

// release ends the use of a snapshot. Once nobody waits for it any more, it is
// no longer taken.
func (s *snapshot) release() {
	if s == nil {
		return
	}
	p := s.module.account.pool
	p.mu.Lock()
	s.users--
	if s.taking && s.users == 0 && !s.forgotten {
		p.forget(s)
		s.stop()
	}
	last := s.forgotten && !s.taking && s.users == 0
	p.mu.Unlock()
	if last && s.image != nil {
		s.image.close()
	}
}

// forget takes a snapshot out of the pool and the table of its module. Calls
// that have it keep it.
func (s *snapshot) forget() {
	p := s.module.account.pool
	p.reclaiming.Lock()
	defer p.reclaiming.Unlock()
	p.mu.Lock()
	if s.forgotten {
		p.mu.Unlock()
		return
	}
	idle := p.forget(s)
	s.users++ // until its instances are discarded
	p.mu.Unlock()
	for _, in := range idle {
		in.discard()
	}
	s.release()
}

// capture takes the state of an instance. Its error matches ErrMemory.
func (s *snapshot) capture(in *instance) error {
	data, at := trim(in.mem.room[:in.mem.size])
	if ceiling := in.account.pool.ceiling; int64(len(data))+int64(in.mem.size+in.account.beside) > ceiling {
		return &impureError{"a copy of what it starts with does not fit into the memory of this host"}
	}
	image, err := in.account.newImage(data, at, in.mem.size)
	if err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	s.image, s.now, s.random = image, in.world.now, *in.world.random
	for _, g := range in.globals {
		s.globals = append(s.globals, g.Get())
	}
	return nil
}

// trim cuts the zeros at both ends off a memory, and says where the rest lies.
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

// restore gives an instance the state beside its memory.
func (in *instance) restore(s *snapshot) {
	for i, g := range in.globals {
		g.Set(s.globals[i])
	}
	in.counter.Set(0)
	in.world.now = s.now
	*in.world.random = s.random
}

// reset brings an instance back to its snapshot after a call. It is false if
// anything may be left of it.
func (in *instance) reset() bool {
	if in.module.IsClosed() || !in.mem.reset() {
		return false
	}
	if in.mem.anew {
		if _, ok := in.module.Memory().Grow(1); !ok {
			return false
		}
	}
	in.restore(in.snapshot)
	return true
}

// forgetSnapshots gives back what the snapshots of a module hold. No call may
// be running.
func (m *Module) forgetSnapshots() {
	p := m.account.pool
	p.mu.Lock()
	var all []*snapshot
	for _, s := range m.snapshots {
		all = append(all, s)
	}
	p.mu.Unlock()
	for _, s := range all {
		s.stop()
		s.forget()
	}
	m.taking.Wait()
}
