package instance

import (
	"reflect"
	"slices"

	"github.com/tetratelabs/wazero/api"
)

// Entry is an exported function of an instance, with the stack that wazero keeps
// for its calls. The stack is on Go's heap and grows as the guest recurses, outside
// the guest's memory.
type Entry struct {
	Function api.Function
	name     string
	stack    reflect.Value // a []byte; invalid if this wazero has no such field
	paid     int64         // bytes that the instance pays for
}

const (
	// stackMost is wazero's approximate limit on a guest's stack, in bytes.
	stackMost = 100_000_000
	// StackFree is the size, in bytes, up to which a stack is free of charge; wazero starts with 10
	// KiB.
	StackFree = 16 << 10
	// stackKept is the largest stack that an instance keeps, and pays for, between calls.
	// Growing its stack step by step takes a quarter of the time of a short script; the
	// runtimes of JavaScript and Python need 50 to 125 KiB.
	stackKept = 128 << 10
	// entriesKept is how many entries an instance keeps for its next call: small stacks
	// are free of charge.
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

// Cached returns an entry that the instance keeps between calls. It makes a new one
// if a call has grown the stack too large to keep.
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

// Shrink drops an entry together with its stack, if the current call has made the stack
// grow.
func (in *Instance) Shrink(name string) {
	in.entries = slices.DeleteFunc(in.entries, func(e *Entry) bool { return e.name == name && e.unpaid() > StackFree })
}

// keepStacks charges the instance for the stacks that it keeps for the next call. It forgets
// others that are not free, and the oldest if there are too many.
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

// size returns the size of the stack in bytes. wazero does not expose it:
// it is read from an unexported field, and is stackMost if that field is
// missing.
func (e *Entry) size() int64 {
	if !e.stack.IsValid() {
		return stackMost
	}
	return int64(e.stack.Cap()) * int64(e.stack.Type().Elem().Size()) // an interpreter's stack consists of words
}

// unpaid returns how many bytes of the stack the instance does not pay for.
func (e *Entry) unpaid() int64 { return e.size() - e.paid }

// Unpaid returns how many bytes of stacks the instance does not pay for while an entry
// runs. It leaves out the stacks of other entries that are free of charge.
func (in *Instance) Unpaid(running *Entry) int64 {
	n := running.unpaid()
	for _, e := range in.entries {
		if e != running && e.size() > StackFree {
			n += e.unpaid()
		}
	}
	return n
}
