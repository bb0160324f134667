// Package wasi provides what a guest sees through WASI preview 1: arguments, environment
// variables, clocks, randomness, standard streams and folders, according to its grant.
// wazero's implementation does most of the work; functions of this package replace what it
// lacks or gets wrong.
//
// https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md documents the functions.
package wasi

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
)

const (
	i32, i64 = api.ValueTypeI32, api.ValueTypeI64

	// Error numbers.
	errnoAccess        = 2
	errnoBadDescriptor = 8
	errnoFault         = 21
	errnoInvalid       = 28
	errnoIO            = 29
	errnoTooManyFiles  = 33 // in the process
	errnoNameTooLong   = 37
	errnoNoEntry       = 44
	errnoNotSocket     = 57
	errnoNotSupported  = 58
	errnoPermission    = 63
)

// Instantiate instantiates WASI's module.
func Instantiate(ctx context.Context, r wazero.Runtime) error {
	_, err := builder(r).Instantiate(experimental.WithFunctionListenerFactory(ctx,
		experimental.FunctionListenerFactoryFunc(func(def api.FunctionDefinition) experimental.FunctionListener {
			name := def.ExportNames()[0]
			return checked{name, descriptorParams(name)}
		})))
	if err != nil {
		return fmt.Errorf("module %s: %w", abi.ImportWASI, err)
	}
	return nil
}

// builder returns the module of WASI.
func builder(r wazero.Runtime) wazero.HostModuleBuilder {
	wasi := r.NewHostModuleBuilder(abi.ImportWASI)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(wasi)
	for name, f := range own {
		wasi.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			stack[0] = uint64(f.call(callOf(ctx), mod.Memory(), stack))
		}), f.params, []api.ValueType{i32}).Export(name)
	}
	return wasi
}

// own holds the WASI functions that replace wazero's. They return an error number.
var own = map[string]struct {
	params []api.ValueType
	call   func(c *Call, mem api.Memory, stack []uint64) uint32
}{
	"fd_fdstat_set_rights": {[]api.ValueType{i32, i64, i64}, setRights},
	"fd_prestat_dir_name":  {[]api.ValueType{i32, i32, i32}, folderName},
	"fd_readdir":           {[]api.ValueType{i32, i32, i32, i64, i32}, readDirectory},
	"fd_renumber":          {[]api.ValueType{i32, i32}, renumber},
	"poll_oneoff":          {[]api.ValueType{i32, i32, i32, i32}, pollOneoff},
	"sock_shutdown":        {[]api.ValueType{i32, i32}, shutdown},
}

// Imports returns the function types of WASI preview 1.
var Imports = sync.OnceValues(func() (map[string]contract.Signature, error) {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	compiled, err := builder(r).Compile(ctx)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", abi.ImportWASI, err)
	}

	signatures := map[string]contract.Signature{}
	for name, def := range compiled.ExportedFunctions() {
		signatures[name] = contract.SignatureOf(def.ParamTypes(), def.ResultTypes())
	}
	return signatures, nil
})

// checked wraps each of wazero's WASI functions, so that a call can end there too. Some
// of them take a long time for little fuel, and file functions wait for disks.
type checked struct {
	name        string
	descriptors []int // indexes of the parameters that are descriptors
}

// Before implements experimental.FunctionListener.
func (f checked) Before(ctx context.Context, m api.Module, _ api.FunctionDefinition, stack []uint64, _ experimental.StackIterator) {
	c := callOf(ctx)
	c.Start.Touched(f.name, stack)
	if c.Shape != contract.Command {
		c.env.idling.before(f.name, stack)
	}
	c.env.files.before(f, stack)
	if strings.HasPrefix(f.name, contract.SocketsPrefix) {
		c.Connected = true
	}
	c.Ops.Meter.Check()
	if len(c.Ops.Grant.Files) > 0 {
		c.Ops.Guest.Lend()
	}
}

// After implements experimental.FunctionListener.
func (f checked) After(ctx context.Context, m api.Module, _ api.FunctionDefinition, results []uint64) {
	c := callOf(ctx)
	if len(c.Ops.Grant.Files) > 0 {
		c.Ops.Guest.Reclaim()
	}
	c.env.files.after(c, f.name, m.Memory(), results)
	if c.Shape != contract.Command {
		c.env.idling.after(m.Memory(), results)
	}
}

// Abort implements experimental.FunctionListener.
func (checked) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}

// reads are the functions that only read what the policy of a call decides, or what every
// call sees the same way.
var reads = map[string]bool{
	"args_get": true, "args_sizes_get": true, "environ_get": true, "environ_sizes_get": true,
	"clock_res_get": true, "clock_time_get": true, "random_get": true, "sched_yield": true,
	"fd_prestat_get": true, "fd_prestat_dir_name": true, "fd_fdstat_get": true,
	"fd_fdstat_set_flags": true, // streams and folders have none
}

// traceless are the other functions that leave no trace in the instance.
var traceless = map[string]bool{
	"fd_write": true, "fd_read": true, "poll_oneoff": true, "fd_filestat_get": true, "proc_exit": true,
}

// streamReads are functions that only read if their descriptor is a standard stream,
// which is the same device in each call and has no position.
var streamReads = map[string]bool{"fd_filestat_get": true, "fd_seek": true, "fd_tell": true}

// maxStream is the descriptor of the last standard stream.
const maxStream = 2

// monotonic is the WASI clock that stands still while a module starts up.
const monotonic = 1

// Reads reports whether a function, called with these parameters, reads only what the policy of
// the call decides or what is the same for every call. If a module uses any other function
// while it starts up, other calls cannot share the result.
func Reads(function string, params []uint64) bool {
	return reads[function] || streamReads[function] && uint32(params[0]) <= maxStream
}

// Traceless reports whether a function leaves no trace in the instance if no folder is
// granted.
func Traceless(function string) bool { return traceless[function] }

// IsMonotonic reports whether a parameter names the clock that stands still while a module
// starts up.
func IsMonotonic(param uint64) bool { return uint32(param) == monotonic }
