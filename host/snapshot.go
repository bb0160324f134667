package host

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fuel"
)

// snapshot is the state of an instance after it has started up. Each call that
// starts from it finds exactly that.
type snapshot struct {
	image   *image
	globals []uint64
	fuel    int64 // what starting up used: each call pays it
	now     int64 // of the clock that stands
	random  rand.ChaCha8

	// What follows is guarded by the mutex of the pool.
	idle   []*instance // clean, the one used last at the end
	closed bool
}

// maxSnapshots bounds the snapshots of one module. Its calls have as many kinds
// of policies as the operator gave its tools.
const maxSnapshots = 8

// view is what a module can see while it starts up, so that calls with the same
// view can share a snapshot. It is empty for a call that must not have one.
func (c *call) view() string {
	p := &c.Policy
	if c.module.Isolation.Mode != Reset || c.describing || c.ImpureInit {
		return ""
	}
	b := strconv.AppendInt(nil, p.Memory, 10)
	b = strconv.AppendBool(strconv.AppendBool(b, p.Clock), p.Random)
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		b = strconv.AppendQuote(strconv.AppendQuote(b, name), p.Env[name])
	}
	for _, m := range p.Files {
		b = strconv.AppendBool(strconv.AppendQuote(strconv.AppendQuote(append(b, '/'), m.Path), m.Dir), m.Write)
	}
	return string(b)
}

// shared is the snapshot of a view, once it is taken.
type shared struct {
	taken    chan struct{} // closed then
	snapshot *snapshot     // nil if there can be none
	again    bool          // taking it failed: another call may try
}

// shared returns the snapshot of a view, nil if there is none, and waits for
// the call that takes it. If this is the one to do so, that must end with
// stored.
func (c *call) shared(view string) (s *snapshot, mine bool, err error) {
	m := c.module
	for view != "" {
		m.mu.Lock()
		e := m.snapshots[view]
		if e == nil {
			m.makeRoom()
			m.snapshots[view] = &shared{taken: make(chan struct{})}
			m.mu.Unlock()
			return nil, true, nil
		}
		m.mu.Unlock()
		select {
		case <-e.taken:
		case <-c.ctx.Done():
			return nil, false, &ended{c.interrupted()}
		}
		if !e.again {
			return e.snapshot, false, nil
		}
	}
	return nil, false, nil
}

// makeRoom lets go of a snapshot if there are too many. Calls that have it keep
// it, and the file of its image is closed when nothing refers to it. The caller
// holds mu.
func (m *Module) makeRoom() {
	for view, e := range m.snapshots {
		if len(m.snapshots) < maxSnapshots {
			return
		}
		select {
		case <-e.taken:
			delete(m.snapshots, view)
			m.retire(e.snapshot)
		default:
		}
	}
}

// stored ends what shared began. Without a snapshot the next call tries again,
// unless there is a reason why there can be none.
func (m *Module) stored(view string, s *snapshot, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.snapshots[view]
	e.snapshot, e.again = s, s == nil && why == ""
	if e.again {
		delete(m.snapshots, view)
	}
	if why != "" {
		m.startup = why
	}
	close(e.taken)
}

// take takes a snapshot of an instance that has started up, and warmed up if it
// can describe itself, and returns the instance to continue with. What depends
// on this call alone, or on other calls, is not shared.
func (c *call) take(ctx context.Context, view string, in *instance) (*instance, error) {
	if c.impure != "" || in.mem.crowded {
		c.module.stored(view, nil, c.impure)
		return in, nil
	}
	s := in.capture(c)
	defer func() { c.module.stored(view, s, "") }()
	if !c.module.Info.Describe {
		return in, nil
	}
	left := c.counter.Get()
	if c.warmUp(in) {
		s.image.close()
		s = in.capture(c)
		return in, nil
	}
	crowded, plain := in.mem.crowded, s
	c.instance, c.counter = nil, nil
	in.discard()
	if c.ctx.Err() != nil || crowded { // another call may have more luck
		s = nil
		defer plain.image.close()
	}
	if err := c.interrupted(); err != nil {
		return nil, &ended{err}
	}
	in, err := c.instantiate(ctx, plain)
	if err != nil {
		return nil, err
	}
	if s == nil {
		in.snapshot = nil // nobody has it
	}
	c.serve(in)
	in.restore(plain)
	in.counter.Set(left)
	return in, nil
}

// warmUp lets a plugin describe itself before its snapshot is taken: what a
// runtime does but once, such as growing its heap, is done then. It sees
// nothing of the call, and the call does not pay. It is false if the instance
// must not be used after it.
func (c *call) warmUp(in *instance) bool {
	w := &call{Call: Call{Plugin: c.Plugin, Tool: abi.ExportDescribe, Policy: c.Policy}, host: c.host, module: c.module}
	w.Policy.Output = abi.MaxManifest
	w.describing, w.starting = true, true
	w.ctx = context.WithValue(c.ctx, callKey{}, w)
	w.meter = fuel.NewMeter(describeFuel, w.interrupted)
	left := in.counter.Get()
	w.serve(in)
	in.counter.Set(0)
	code, err := invoke(w.ctx, in.module, abi.ExportDescribe)
	in.counter.Set(left)
	c.serve(in)
	return err == nil && code == abi.InvokeOK && w.failed == nil && w.impure == "" && !w.tainted
}

// count counts where the instance of a call is from.
func (m *Module) count(in *instance, warm bool) {
	m.account.count(func(n *Counts) {
		switch {
		case warm:
			n.Warm++
		case in.snapshot != nil:
			n.Restored++
		default:
			n.Started++
		}
	})
}

// capture takes a snapshot of an instance that has started up.
func (in *instance) capture(c *call) *snapshot {
	memory := in.mem.room[:in.mem.size]
	end := len(memory)
	for end > 0 && memory[end-1] == 0 {
		end--
	}
	s := &snapshot{
		image:   newImage(slices.Clone(memory[:end]), in.mem.size),
		globals: make([]uint64, len(in.globals)),
		fuel:    c.meter.Used(int64(c.counter.Get())),
		now:     in.world.now,
		random:  *in.world.random,
	}
	for i, g := range in.globals {
		s.globals[i] = g.Get()
	}
	return s
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
	if in.mem.next > 0 {
		if _, ok := in.module.Memory().Grow(1); !ok {
			return false
		}
	}
	in.restore(in.snapshot)
	return true
}

// retire discards the warm instances of a snapshot.
func (m *Module) retire(s *snapshot) {
	if s == nil {
		return
	}
	p := m.account.pool
	p.mu.Lock()
	s.closed = true
	idle := slices.Clone(s.idle)
	for _, in := range idle {
		p.remove(in)
	}
	p.mu.Unlock()
	for _, in := range idle {
		in.discard()
	}
}

// forgetSnapshots gives back what the snapshots of a module hold. No call may
// be running.
func (m *Module) forgetSnapshots() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.snapshots {
		if e.snapshot != nil {
			m.retire(e.snapshot)
			e.snapshot.image.close()
		}
	}
	m.snapshots = map[string]*shared{}
}

// wasiEffects classifies the functions of WASI by what they do to a snapshot.
// Those of the first kind only read what view tells apart; those of the second
// leave nothing behind in the instance either, where no folder is granted. Any
// other may.
var wasiEffects = map[string]bool{
	"args_get": true, "args_sizes_get": true, "environ_get": true, "environ_sizes_get": true,
	"clock_res_get": true, "clock_time_get": true, "random_get": true, "sched_yield": true,
	"fd_prestat_get": true, "fd_prestat_dir_name": true, "fd_fdstat_get": true,
	"fd_fdstat_set_flags": true, // none of the streams and folders there are has any
	"fd_write":            false, "fd_read": false, "poll_oneoff": false, "fd_filestat_get": false, "proc_exit": false,
}

// touched notes what a guest does that concerns its snapshot.
func (c *call) touched(function string) {
	reads, known := wasiEffects[function]
	c.tainted = c.tainted || !known
	if !c.starting || c.impure != "" {
		return
	}
	switch {
	case !reads:
		c.impure = "it calls " + function + " while it starts up"
	case function == "random_get" && c.Policy.Random && !c.module.renews:
		c.impure = "it reads random bytes while it starts up, and does not export " + abi.ExportRestored
	}
}

// touchedContract notes that a guest used the contract, which knows one call
// from another.
func (c *call) touchedContract() {
	if c.starting && !c.describing && c.impure == "" {
		c.impure = "it calls " + abi.Version + " while it starts up"
	}
}
