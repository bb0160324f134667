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

// Instance is a module that is ready to run. It serves one call at a time.
type Instance struct {
	Module   api.Module
	Memory   *Memory
	Env      *Env
	Counter  api.MutableGlobal // fuel counter
	Guest    any               // data that the host keeps for the instance
	Snapshot *Snapshot         // the snapshot it started from; nil if it started up itself
	Release  func()            // function that closes the resources of the guest

	account *Account
	globals []api.MutableGlobal
	entries []*Entry // reusable entries
	stacks  uint64   // bytes of their stacks that are paid for

	since time.Time // start of its current wait
}

// Add completes an instance; globals is the number of its mutable globals. It takes
// over the caller's use of the snapshot. Discard frees everything that the instance is
// made of.
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

// restore restores the state of the snapshot outside the memory.
func (in *Instance) restore() {
	for i, g := range in.globals {
		g.Set(in.Snapshot.globals[i])
	}
	in.Counter.Set(0)
	*in.Env = in.Snapshot.env
}

// reset restores an instance to its snapshot after a call. It reports false
// if any trace of the call may be left.
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

// Threw reports whether the trap that ended a call was a WebAssembly exception that escaped
// from the module.
func (in *Instance) Threw() bool {
	tag := in.Module.ExportedGlobal(exceptions.TagExport)
	return tag != nil && tag.Get() != 0
}

// Finish ends the use of an instance. If it is clean and can be reset to its
// snapshot, it waits for the next call; otherwise it is discarded.
func (in *Instance) Finish(clean bool) {
	if clean && in.Snapshot != nil && in.reset() {
		in.keepStacks()
		if in.account.ledger.keep(in) {
			return
		}
	}
	in.Discard()
}

// Discard closes an instance and frees its memory.
func (in *Instance) Discard() {
	_ = in.Module.Close(context.Background())
	in.Release()
	in.Memory.Release()
	in.account.Give(Linear, in.stacks)
	in.account.instances(-1)
	in.Snapshot.Release()
}

// Image returns the image that the instance started with: the image of its snapshot or,
// without a snapshot, of its module.
func (in *Instance) Image() *Image { return in.Memory.image }

// Save records the instance's changed memory pages and its globals. It skips the last
// global, the fuel counter that the rewriter adds, which belongs to the host.
func (in *Instance) Save(c *checkpoint.Checkpoint) {
	image := in.Image()
	c.Image = image.Digest()
	c.Compare(in.Memory.room[:in.Memory.size], image.bytes, image.at, in.Memory.written())
	c.Globals = nil
	for _, g := range in.globals[:len(in.globals)-1] {
		c.Globals = append(c.Globals, g.Get())
	}
}

// Started reports whether an instance that has only started up equals the image with that
// digest. It also compares the memory of an instance without a snapshot, whose call started
// up concurrently with another one.
func (in *Instance) Started(image checkpoint.Digest) bool {
	if in.Image().Digest() == image {
		return true
	}
	return in.Snapshot == nil && checkpoint.DigestImage(trim(in.Memory.room[:in.Memory.size])) == image
}

// Load restores the state that Save recorded. If image is nil, the base image of the state
// must be the instance's own image, and the instance must be unchanged since it started
// from that image. Otherwise image is the base image of the state, and the instance may
// differ from it. The error matches ErrMemory, or says what does not fit the module.
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
