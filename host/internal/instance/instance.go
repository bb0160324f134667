package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/internal/checkpoint"
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

// Finish ends the service of an instance. One that is clean, so that it can be put
// back to its snapshot, waits for the next call. Any other is discarded.
func (in *Instance) Finish(clean bool) {
	if !clean || in.Snapshot == nil || !in.reset() || !in.account.ledger.keep(in) {
		in.Discard()
	}
}

// Discard closes an instance and gives back what it holds.
func (in *Instance) Discard() {
	_ = in.Module.Close(context.Background())
	in.Release()
	in.Memory.Release()
	in.account.instances(-1)
	in.Snapshot.Release()
}

// Entry is a function of an instance that is called from outside, with the stack
// that wazero keeps for its calls. The stack is on Go's heap and grows as the guest
// recurses, outside the memory that a guest can see.
type Entry struct {
	Function api.Function
	name     string
	stack    reflect.Value // a []byte; invalid if this wazero has no such field
}

const (
	// StackMost is about how large wazero lets the stack of a guest become, in
	// bytes.
	StackMost = 100_000_000
	// StackKept is the largest stack that is kept for the next call and not paid
	// for; wazero starts with 10 KiB.
	StackKept = 16 << 10
)

// Entry returns an exported function, or nil.
func (in *Instance) Entry(name string) *Entry {
	f := in.Module.ExportedFunction(name)
	if f == nil {
		return nil
	}

	e := &Entry{Function: f, name: name}
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		if s := v.Elem().FieldByName("stack"); s.Kind() == reflect.Slice {
			e.stack = s
		}
	}
	return e
}

// Cached returns an entry that is made once for an instance, unless a call made
// its stack grow.
func (in *Instance) Cached(name string) *Entry {
	for i, e := range in.entries {
		if e.name != name {
			continue
		}
		if e.Stack() > StackKept {
			in.entries[i] = in.Entry(name)
		}
		return in.entries[i]
	}

	e := in.Entry(name)
	in.entries = append(in.entries, e)
	return e
}

// Shrink forgets the stack of an entry that a call made grow.
func (in *Instance) Shrink(name string) {
	in.entries = slices.DeleteFunc(in.entries, func(e *Entry) bool { return e.name == name && e.Stack() > StackKept })
}

// Stack is the size of the stack in bytes. wazero does not expose it: it is read
// from an unexported field, and is StackMost if that field is missing.
func (e *Entry) Stack() int64 {
	if !e.stack.IsValid() {
		return StackMost
	}
	return int64(e.stack.Cap()) * int64(e.stack.Type().Elem().Size()) // an interpreter's is of words
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

// Load gives an instance that is as its image the state that Save has noted, of an equal
// image. Its error matches ErrMemory, or says that the globals are others.
func (in *Instance) Load(c *checkpoint.Checkpoint) error {
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

	c.Apply(in.Memory.room[:in.Memory.size])
	for i, g := range c.Globals {
		in.globals[i].Set(g)
	}
	return nil
}
