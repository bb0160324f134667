// Package bombs makes small plugins that are expensive to compile, for tests only. Each [Bomb] is
// one shape of code. The shapes were found by reading the compiler, in search of paths that
// recurse or take more than linear time.
//
// All of them follow the contract: a host accepts their manifests, and finds nothing wrong before
// it compiles their code.
package bombs

import (
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// A Bomb makes plugins of any size whose code has one shape that is expensive to compile.
type Bomb struct {
	Name string
	// Why explains the cost: which part of the compiler it affects, and how it grows.
	Why string
	// Size is large enough to hurt: at that size, the plugin takes many seconds of processor time
	// or gigabytes of memory to compile, or overflows the stack. Where the cost is linear, the
	// file is several megabytes large.
	Size int
	// Make returns the plugin of the given size.
	Make func(n int) []byte
}

// Wasm returns the plugin of size Size.
func (b Bomb) Wasm() []byte { return b.Make(b.Size) }

// Unsealed returns a plugin without its manifest section, so that the host has to call the
// plugin's describe function.
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
