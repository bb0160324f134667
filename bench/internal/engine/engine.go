// Package engine runs the modules of benchmarks in several ways: on wazero, plain and
// metered, and on wasmtime.
package engine

import (
	"errors"
	"time"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Engine is a way of running modules.
type Engine struct {
	Name string
	Base string // name of the engine it is compared with
	load func(wasm []byte, host Host) (*Program, error)
}

// All are the engines. Wazero is the first one.
var All = []Engine{
	{"wazero", "wazero", wazeroLoader(plain)},
	{"wazero again", "wazero", wazeroLoader(plain)},
	{"metered", "wazero", wazeroLoader(metered)},
	{"close on done", "wazero", wazeroLoader(closeOnDone)},
	{"wasmtime", "wasmtime", wasmtimeLoader(plain)},
	{"wasmtime fuel", "wasmtime", wasmtimeLoader(metered)},
	{"wasmtime epoch", "wasmtime", wasmtimeLoader(epoch)},
}

type mode int

const (
	plain mode = iota
	metered
	closeOnDone
	epoch
)

// Load compiles a module.
func (e Engine) Load(wasm []byte, host Host) (*Program, error) { return e.load(wasm, host) }

// Host is what a module finds outside itself. The zero value is an empty WASI.
type Host struct {
	Args  []string
	Stdin []byte
	// Functions are imported functions by "module.name". Those of WASI are there;
	// all others return zero.
	Functions map[string]Function
}

// Function is an imported function. It has at most one result.
type Function func(in *Instance, args []uint64) uint64

// Program is a compiled module.
type Program struct {
	Compile time.Duration // that compiling took, with rewriting
	start   func() (*Instance, error)
	close   func()
}

// Start makes an instance, and calls its _initialize if it has one.
func (p *Program) Start() (*Instance, error) {
	in, err := p.start()
	if err != nil {
		return nil, err
	}
	if _, err := in.Call("_initialize"); err != nil && !errors.Is(err, errNoExport) {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// Close frees the program, after its instances are closed.
func (p *Program) Close() { p.close() }

// Instance is an instance of a module.
type Instance struct {
	// Output is for host functions: what they have taken from the guest.
	Output []byte

	call   func(name string, args []uint64) (uint64, error)
	memory func() []byte
	stdout func() ([]byte, error)
	used   func() int64
	close  func() error
}

var errNoExport = errors.New("no such export")

// Call calls an export, which has at most one result. An exit with code 0 is no error.
func (in *Instance) Call(name string, args ...uint64) (uint64, error) { return in.call(name, args) }

// Memory is the memory of the instance, until it grows.
func (in *Instance) Memory() []byte { return in.memory() }

// Stdout is what the instance has written to its standard output.
func (in *Instance) Stdout() ([]byte, error) { return in.stdout() }

// Fuel is the fuel used so far, in units of this project; 0 if the engine does not meter so.
func (in *Instance) Fuel() int64 { return in.used() }

// Close frees the instance.
func (in *Instance) Close() error { return in.close() }

// Metered returns a module that counts what it executes.
func Metered(wasm []byte) ([]byte, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	_, err = fuel.Rewrite(m)
	return m.Encode(), err
}

// CodeSize is the size of all function bodies of a module, in bytes.
func CodeSize(wasm []byte) (int, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, c := range m.Codes {
		n += len(c.Body)
	}
	return n, nil
}

// imports are the imported functions of a module that are not those of WASI.
func imports(wasm []byte) (map[string][]function, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	all := map[string][]function{}
	for _, i := range m.Imports {
		if i.Kind == wasmbin.KindFunc && i.Module != wasi {
			all[i.Module] = append(all[i.Module], function{i.Name, m.Types[i.Type]})
		}
	}
	return all, nil
}

const wasi = "wasi_snapshot_preview1"

type function struct {
	name string
	typ  wasmbin.FuncType
}
