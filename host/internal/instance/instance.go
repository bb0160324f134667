package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/internal/exceptions"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/snapshot"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Instance is a module that is ready to run, and serves one call at a time.
type Instance struct {
	Module   api.Module
	Memory   *Memory
	Env      *Env
	Counter  api.MutableGlobal // of fuel
	Guest    any               // what the host has for it
	Snapshot *Snapshot         // that it started from; nil if it started up itself
	Release  func()            // closes what the guest was given

	account *Account
	globals []api.MutableGlobal
	entries []*Entry // those that are called again
	stacks  uint64   // bytes of their stacks that are paid for

	since time.Time // it waits
}

// Add completes an instance, which has that many mutable globals. It uses the
// snapshot in place of the caller. Discard gives back all it is made of.
func (a *Account) Add(in *Instance, globals int) {
	in.account = a
	a.instances(1)
	in.Counter = in.Module.ExportedGlobal(fuel.CounterExport).(api.MutableGlobal)
	for i := range globals {
		in.globals = append(in.globals, in.Module.ExportedGlobal(snapshot.GlobalExport(i)).(api.MutableGlobal))
	}
	if in.Snapshot != nil {
		in.restore()
	}
}

// restore gives an instance the state of its snapshot outside its memory.
func (in *Instance) restore() {
	for i, g := range in.globals {
		g.Set(in.Snapshot.globals[i])
	}
	in.Counter.Set(0)
	*in.Env = in.Snapshot.env
}

// reset brings an instance back to its snapshot after a call. It is false if
// anything may be left of it.
func (in *Instance) reset() bool {
	if in.Module.IsClosed() || !in.Memory.reset() {
		return false
	}
	if in.Memory.anew {
		if _, ok := in.Module.Memory().Grow(1); !ok {
			return false
		}
	}
	in.restore()
	return true
}

// Threw reports whether the trap that has ended a call was an exception of WebAssembly that
// left the module.
func (in *Instance) Threw() bool {
	tag := in.Module.ExportedGlobal(exceptions.TagExport)
	return tag != nil && tag.Get() != 0
}

// Finish ends the service of an instance. One that is clean, so that it can be put
// back to its snapshot, waits for the next call. Any other is discarded.
func (in *Instance) Finish(clean bool) {
	if clean && in.Snapshot != nil && in.reset() {
		in.keepStacks()
		if in.account.ledger.keep(in) {
			return
		}
	}
	in.Discard()
}

// Discard closes an instance and gives back what it holds.
func (in *Instance) Discard() {
	_ = in.Module.Close(context.Background())
	in.Release()
	in.Memory.Release()
	in.account.Give(Linear, in.stacks)
	in.account.instances(-1)
	in.Snapshot.Release()
}

// Image is what the instance started with: that of its snapshot, or of its module.
func (in *Instance) Image() *Image { return in.Memory.image }

// Save notes the state of an instance that waits: its memory, compared with its image, and
// its globals without the counter of fuel, which is the host's. Rewriting
// adds that one as the last.
func (in *Instance) Save(c *checkpoint.Checkpoint) {
	image := in.Image()
	c.Image = image.Digest()
	c.Compare(in.Memory.room[:in.Memory.size], image.bytes, image.at, in.Memory.written())
	c.Globals = nil
	for _, g := range in.globals[:len(in.globals)-1] {
		c.Globals = append(c.Globals, g.Get())
	}
}

// Started reports whether an instance that has done nothing but start up is as the image
// with that digest. One of a call that found another one starting up has no snapshot.
func (in *Instance) Started(image checkpoint.Digest) bool {
	if in.Image().Digest() == image {
		return true
	}
	return in.Snapshot == nil && checkpoint.DigestImage(trim(in.Memory.room[:in.Memory.size])) == image
}

// Load gives an instance the state that Save has noted. The instance is as its image, and
// that equals the one of the state, unless image is given: then it may be as it likes. The
// error matches ErrMemory, or says what does not fit the module.
func (in *Instance) Load(c *checkpoint.Checkpoint, image *checkpoint.Image) error {
	if len(c.Globals) != len(in.globals)-1 {
		return errors.New("the checkpoint has other globals than the module")
	}
	memory := in.Module.Memory()
	if c.Size < uint64(memory.Size()) {
		return errors.New("the checkpoint has less memory than the module starts with")
	}
	if more := c.Size - uint64(memory.Size()); more > 0 {
		if _, ok := memory.Grow(uint32(more / wasmbin.PageSize)); !ok {
			return cmp.Or(in.Memory.Refused, fmt.Errorf("%w: the module cannot have the memory of the checkpoint", ErrMemory))
		}
	}

	room := in.Memory.room[:in.Memory.size]
	if image != nil && !image.Apply(room) {
		return errors.New("the image of the checkpoint is larger than its memory")
	}
	c.Apply(room)
	for i, g := range c.Globals {
		in.globals[i].Set(g)
	}
	return nil
}
