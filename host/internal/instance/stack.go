package instance

import (
	"reflect"
	"slices"

	"github.com/tetratelabs/wazero/api"
)

// Entry is a function of an instance that is called from outside, with the stack
// that wazero keeps for its calls. The stack is on Go's heap and grows as the guest
// recurses, outside the memory that a guest can see.
type Entry struct {
	Function api.Function
	name     string
	stack    reflect.Value // a []byte; invalid if this wazero has no such field
	paid     int64         // bytes of it that the instance pays for
}

const (
	// stackMost is about how large wazero lets the stack of a guest become, in
	// bytes.
	stackMost = 100_000_000
	// StackFree is how large a stack may be before it is paid for; wazero starts with 10 KiB.
	StackFree = 16 << 10
	// stackKept is how large a stack may be that an instance keeps for its next call, and
	// pays for meanwhile. A quarter of what a short script takes is to make its stack grow
	// step by step; the runtimes of JavaScript and Python need 50 to 125 KiB.
	stackKept = 128 << 10
	// entriesKept is how many entries an instance keeps for its next call: their stacks
	// are not paid for as long as they are small.
	entriesKept = 8
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

// Cached returns an entry that is made once for an instance, unless a call made its stack
// grow beyond what is kept.
func (in *Instance) Cached(name string) *Entry {
	for _, e := range in.entries {
		if e.name == name {
			return e
		}
	}
	e := in.Entry(name)
	in.entries = append(in.entries, e)
	return e
}

// Shrink forgets the stack of an entry that the present call made grow.
func (in *Instance) Shrink(name string) {
	in.entries = slices.DeleteFunc(in.entries, func(e *Entry) bool { return e.name == name && e.unpaid() > StackFree })
}

// keepStacks has the instance pay for the stacks that it keeps for the next call, and forgets
// the others that are not free, and the oldest if there are many.
func (in *Instance) keepStacks() {
	size := uint64(0)
	in.entries = slices.Delete(in.entries, 0, max(0, len(in.entries)-entriesKept))
	in.entries = slices.DeleteFunc(in.entries, func(e *Entry) bool {
		e.paid = e.size()
		switch {
		case e.paid <= StackFree:
			e.paid = 0
		case e.paid > stackKept || !in.account.ledger.roomy():
			return true
		}
		size += uint64(e.paid)
		return false
	})

	if size > in.stacks {
		if ok, _ := in.account.Payer(nil).tryTake(Linear, size-in.stacks); !ok {
			in.entries = slices.DeleteFunc(in.entries, func(e *Entry) bool { return e.paid > 0 })
			size = 0
		}
	}
	if size < in.stacks {
		in.account.Give(Linear, in.stacks-size)
	}
	in.stacks = size
}

// size is that of the stack in bytes. wazero does not expose it: it is read
// from an unexported field, and is stackMost if that field is missing.
func (e *Entry) size() int64 {
	if !e.stack.IsValid() {
		return stackMost
	}
	return int64(e.stack.Cap()) * int64(e.stack.Type().Elem().Size()) // an interpreter's is of words
}

// unpaid is how many bytes of the stack the instance does not pay for.
func (e *Entry) unpaid() int64 { return e.size() - e.paid }

// Unpaid is how many bytes of stacks the instance does not pay for while an entry runs, apart
// from those of other entries that are free.
func (in *Instance) Unpaid(running *Entry) int64 {
	n := running.unpaid()
	for _, e := range in.entries {
		if e != running && e.size() > StackFree {
			n += e.unpaid()
		}
	}
	return n
}
