// Package bombs makes small plugins that are expensive to compile, for tests
// only. Each [Bomb] is one shape of code, chosen by reading the
// compiler for paths that recurse or take more than linear time.
//
// All of them keep the contract: a host accepts their manifests, and notices
// nothing before it reads their code.
package bombs

import (
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// A Bomb is one shape of plugin, of any size.
type Bomb struct {
	Name string
	// Why says what it costs: which part of the compiler, and how it grows.
	Why string
	// Size is large enough to hurt: it takes many seconds of processor time or
	// gigabytes of memory to compile, or overflows the stack. Where the cost is
	// linear it is the size of a file of some megabytes.
	Size int
	// Make returns the plugin of a size.
	Make func(n int) []byte
}

// Wasm is the plugin at its hurtful size.
func (b Bomb) Wasm() []byte { return b.Make(b.Size) }

// Unsealed is the plugin without its manifest, which has to be asked for it.
func Unsealed(plugin []byte) []byte {
	m, err := wasmbin.Parse(plugin)
	if err != nil {
		panic(err)
	}
	m.Customs = slices.DeleteFunc(m.Customs, func(c wasmbin.Custom) bool { return c.Name == abi.SectionManifest })
	return m.Encode()
}

// All returns all bombs.
func All() []Bomb {
	var all []Bomb
	for _, group := range [][]Bomb{blocks(), values(), branches(), straight(), modules()} {
		all = append(all, group...)
	}
	return all
}
