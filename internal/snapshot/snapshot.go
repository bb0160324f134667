// Package snapshot prepares modules so that their instances can be restored to an
// earlier state: it moves the initial data of the memory into an image, makes the
// start function an export, and exports every mutable global. The code is unchanged.
//
// A host cannot read or write tables, dropped segments and globals with references. A
// module that changes them needs a fresh instance for every call; [Program.Why] names
// the reason.
package snapshot

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Names that the prepared module shares with its host. Modules that use them
// are refused with [ErrReserved].
const (
	// StartExport is the export that was the module's start function.
	StartExport = "toolhost.state.start"
	// globalExport and a number from 0 name the mutable globals.
	globalExport   = "toolhost.state.global."
	reservedPrefix = "toolhost.state"
)

// Version changes whenever the same input gives a different output.
const Version = 2

// ErrReserved means that the module exports a name reserved for the host.
var ErrReserved = errors.New("reserved name")

// Program is a prepared module.
type Program struct {
	Wasm []byte
	// Image is the initial content of the memory, from its first nonzero byte, which
	// is at At, to its last one. The module no longer contains it: the host copies it
	// into each instance. Image is nil if the memory starts as zeros, or if the
	// content had to stay in the module.
	Image   []byte
	At      uint64
	Start   bool   // whether to call [StartExport] first in each new instance
	Globals int    // number of exported mutable globals, see [GlobalExport]
	Why     string // why an instance cannot be restored; empty if it can
}

// GlobalExport returns the export name of the i-th mutable global.
func GlobalExport(i int) string { return globalExport + strconv.Itoa(i) }

// Prepare prepares a decoded module in place, and leaves Program.Wasm empty. Call it
// last: nothing may rewrite the code afterwards. Errors wrap those of package wasmbin or
// [ErrReserved].
func Prepare(m *wasmbin.Module) (*Program, error) {
	for _, e := range m.Exports {
		if strings.HasPrefix(e.Name, reservedPrefix) {
			return nil, fmt.Errorf("export %q: %w: it belongs to the host", e.Name, ErrReserved)
		}
	}

	found, err := scan(m)
	if err != nil {
		return nil, err
	}
	p := &Program{Why: found.why(m)}
	if !found.segments && len(m.Memories) > 0 && m.ImportCount(wasmbin.KindMemory) == 0 {
		if a, stays := dataArea(m); stays == "" {
			p.Image, p.At = moveData(m, a)
		}
	}
	if m.Start != nil {
		m.Exports = append(m.Exports, wasmbin.Export{Name: StartExport, Kind: wasmbin.KindFunc, Index: *m.Start})
		m.Start, p.Start = nil, true
	}

	for i, g := range m.Globals {
		if g.Mutable {
			index := uint32(m.ImportCount(wasmbin.KindGlobal) + i)
			m.Exports = append(m.Exports, wasmbin.Export{Name: GlobalExport(p.Globals), Kind: wasmbin.KindGlobal, Index: index})
			p.Globals++
		}
	}

	for i := range m.Memories {
		m.Memories[i].HasMax = false // the host holds it: shrinking a memory that is full needs room above it
	}
	return p, nil
}

// Why returns why instances of a module cannot be restored, or "" if they can.
// Errors are those of [Prepare].
func Why(wasm []byte) (string, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return "", err
	}
	found, err := scan(m)
	if err != nil {
		return "", err
	}
	return found.why(m), nil
}
