// Package snapshot prepares modules so that their instances can be put back to
// an earlier state: it moves the data a memory starts with out into an image,
// makes the start function an export, and exports every mutable global. No byte
// of code changes.
//
// What it cannot put back it names: tables, dropped segments and globals that
// hold references are no state a host can read or write. A module that changes
// them needs a fresh instance for every call.
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
	// StartExport is the function that was the start function.
	StartExport = "toolhost.state.start"
	// globalExport and a number from 0 name the mutable globals.
	globalExport   = "toolhost.state.global."
	reservedPrefix = "toolhost.state"
)

// Version changes whenever the same input makes another output.
const Version = 2

// ErrReserved: the module exports a name that is reserved for its host.
var ErrReserved = errors.New("reserved name")

// Program is a prepared module.
type Program struct {
	Wasm []byte
	// Image is what the memory starts with, from the first byte that is not
	// zero, at At, to the last. The module no longer has it: whoever makes an
	// instance puts it there. Nil if there is none, or if it had to stay in the
	// module.
	Image   []byte
	At      uint64
	Start   bool   // [StartExport] is there: call it first in each new instance
	Globals int    // how many of [GlobalExport] there are
	Why     string // why an instance cannot be put back; empty if it can
}

// GlobalExport is the name of the i-th mutable global.
func GlobalExport(i int) string { return globalExport + strconv.Itoa(i) }

// Prepare prepares a module whose code does not change any more. Errors wrap
// those of package wasmbin or [ErrReserved].
func Prepare(wasm []byte) (*Program, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
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
	p.Wasm = m.Encode()
	return p, nil
}

// Why says why an instance of a module cannot be put back to an earlier state.
// It is empty if it can. Errors are those of [Prepare].
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
