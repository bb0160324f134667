package fuel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/internal/atomics"
	"github.com/toolhost/toolhost/internal/exceptions"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Names that the rewritten module shares with its host. Guests that use them are
// refused with [ErrReserved].
const (
	// ImportModule and ImportName name the imported refill function, of type
	// (i64) -> i64. It takes the counter, which is below zero when it is overdrawn,
	// and returns its new value.
	ImportModule = "toolhost.fuel"
	ImportName   = "refill"
	// CounterExport names the exported counter, a mutable global of type i64. It starts at 0.
	CounterExport = "toolhost.fuel.counter"
	// reservedPrefix starts every name of ours.
	reservedPrefix = "toolhost.fuel"
)

// RewriterVersion changes whenever the same input gives a different output. It
// belongs in the key of every cache of compiled programs.
const RewriterVersion = 9

// ErrReserved means that the guest imports or exports a name reserved for metering.
var ErrReserved = errors.New("reserved name")

// Stats counts what rewriting a module adds to its instances.
type Stats struct {
	References int // number of functions whose references the code takes; each adds a global
	Entries    int // number of table entries that the module can have, in all tables together
}

// Rewrite changes a module in place so that it meters itself. Its results, traps and
// their order stay the same. Atomic instructions and exceptions are first replaced by
// ordinary code, see packages atomics and exceptions; that code is metered.
//
// Errors wrap wasmbin.ErrMalformed, wasmbin.ErrUnsupported or [ErrReserved], and leave
// the module half changed. Function bodies are decoded but not type-checked: a module
// that is not valid is refused here or when the runtime compiles it.
func Rewrite(m *wasmbin.Module) (Stats, error) {
	if err := refuseReserved(m); err != nil {
		return Stats{}, err
	}
	if err := atomics.Lower(m); err != nil {
		return Stats{}, err
	}
	if err := exceptions.Lower(m); err != nil {
		return Stats{}, err
	}
	r := newRewriter(m)
	return r.rewrite(r.bodies)
}

func refuseReserved(m *wasmbin.Module) error {
	for _, i := range m.Imports {
		if strings.HasPrefix(i.Module, reservedPrefix) {
			return fmt.Errorf("import %q %q: %w: it belongs to the meter", i.Module, i.Name, ErrReserved)
		}
	}
	for _, e := range m.Exports {
		if strings.HasPrefix(e.Name, reservedPrefix) {
			return fmt.Errorf("export %q: %w: it belongs to the meter", e.Name, ErrReserved)
		}
	}
	return nil
}
