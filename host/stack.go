package host

import (
	"reflect"

	"github.com/tetratelabs/wazero/api"
)

// entry is a function of an instance that is called from outside, and the stack
// that wazero keeps for its calls. The stack lies on Go's heap and grows as the
// guest recurses, beside the memory that a guest can see.
type entry struct {
	function api.Function
	stack    reflect.Value // a []byte; invalid if this wazero has no such field
	answer   [1]uint64
}

// stackMost is about how large wazero lets the stack of a guest become, in
// bytes.
const stackMost = 100_000_000

// stackKept is the largest stack that is kept for the next call and that the
// host's memory limit does not count; wazero starts with 10 KiB.
const stackKept = 16 << 10

// entry returns an exported function, nil if there is none.
func (in *instance) entry(name string) *entry {
	f := in.module.ExportedFunction(name)
	if f == nil {
		return nil
	}
	e := &entry{function: f}
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		if s := v.Elem().FieldByName("stack"); s.Kind() == reflect.Slice {
			e.stack = s
		}
	}
	return e
}

// bytes is the size of the stack. Where it cannot be seen it is taken for the
// largest.
func (e *entry) bytes() int64 {
	if !e.stack.IsValid() {
		return stackMost
	}
	return int64(e.stack.Cap()) * int64(e.stack.Type().Elem().Size()) // an interpreter's is of words
}

// cached returns an entry that is made once for an instance, unless a call made
// its stack grow.
func (in *instance) cached(e **entry, name string) *entry {
	if *e == nil || (*e).bytes() > stackKept {
		*e = in.entry(name)
	}
	return *e
}

// enter runs a function of the guest, and returns what it answers if it answers
// anything.
func (c *call) enter(e *entry) (int32, error) {
	c.entered = e
	err := e.function.CallWithStack(&c.ctx, e.answer[:])
	c.entered = nil
	return api.DecodeI32(e.answer[0]), err
}

// payStack pays for what the stack has grown by since the last look.
func (c *call) payStack() error {
	if c.entered == nil {
		return nil
	}
	n := c.entered.bytes()
	if n <= max(c.stack, stackKept) {
		return nil
	}
	if c.module.interpreted && n > stackMost {
		return errUnfit
	}
	if err := c.module.account.take(uint64(n - c.stack)); err != nil {
		return err
	}
	c.count(countStacks, n-c.stack)
	c.stack = n
	return nil
}

// keepFree is how much a call may keep before the host's memory limit counts it,
// in bytes.
const keepFree = 4 << 10

// keep pays for n bytes of arguments or results that lie on Go's heap until the
// call ends.
func (c *call) keep(n int) error {
	c.kept += int64(n)
	more := c.kept - c.buffers
	if more <= keepFree {
		return nil
	}
	if err := c.module.account.take(uint64(more)); err != nil {
		return err
	}
	c.count(countBuffers, more)
	c.buffers = c.kept
	return nil
}

// repay gives back what was paid for.
func (c *call) repay() {
	if n := c.stack + c.buffers; n > 0 {
		c.module.account.give(uint64(n))
		c.count(countStacks, -c.stack)
		c.count(countBuffers, -c.buffers)
		c.stack, c.buffers = 0, 0
	}
}
