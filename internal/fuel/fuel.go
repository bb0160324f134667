package fuel

import (
	"errors"
	"fmt"
	"strings"

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

// RewriterVersion changes whenever the same input makes another output. It
// belongs in the key of every cache of compiled programs.
const RewriterVersion = 4

// ErrReserved says that the guest imports or exports a name reserved for metering.
var ErrReserved = errors.New("reserved name")

// Program is a module rewritten to count what it executes.
type Program struct {
	Wasm  []byte // the rewritten binary
	Stats Stats
}

// Stats says what rewriting did, for reports.
type Stats struct {
	CostVersion int // of the cost table, [CostVersion]
	Original    int // size of the module in bytes
	Rewritten   int // size of the rewritten module in bytes
	Functions   int // defined in the module
	Operators   int // operators that cost something, in all functions
	Loops       int
	Charges     int // places that subtract from the counter
	Checks      int // places that check whether the counter is below zero
	Simple      int // functions rewritten the simple way
	Threaded    int // jumps that skip a dispatch
	References  int // functions whose reference the code takes; each adds a global
	Entries     int // table entries the module can have, all tables together
}

// Rewrite returns the module wasm as a program that counts what it executes. Its
// results, traps and their order are those of wasm.
//
// Errors wrap wasmbin.ErrMalformed, wasmbin.ErrUnsupported or [ErrReserved].
// Function bodies are decoded but not type-checked: a module that is not valid
// is refused here or when the runtime compiles the program.
func Rewrite(wasm []byte) (*Program, error) { return rewrite(wasm, false) }

// RewriteModule does what [Rewrite] does with a module that is decoded, in place.
// Stats.Original and Stats.Rewritten are 0.
func RewriteModule(m *wasmbin.Module) (Stats, error) { return rewriteModule(m, false) }

func rewrite(wasm []byte, simple bool) (*Program, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	stats, err := rewriteModule(m, simple)
	if err != nil {
		return nil, err
	}

	out := m.Encode()
	stats.Original, stats.Rewritten = len(wasm), len(out)
	return &Program{Wasm: out, Stats: stats}, nil
}

func rewriteModule(m *wasmbin.Module, simple bool) (Stats, error) {
	if err := refuseReserved(m); err != nil {
		return Stats{}, err
	}
	r := newRewriter(m)
	r.simple = simple
	err := r.rewrite()
	return r.stats, err
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
