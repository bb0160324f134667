package contract

import (
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/compiler"
)

// ErrABI means that a module breaks the contract.
var ErrABI = errors.New("the plugin breaks the contract")

// ErrNoManifest means that a plugin has no manifest.
var ErrNoManifest = errors.New("the plugin has no manifest: add the custom section " + abi.SectionManifest +
	", a sidecar NAME.toolhost.yaml next to NAME.wasm, or export " + abi.ExportDescribe)

// ModuleError says why a module was refused. It matches [ErrABI].
type ModuleError struct {
	Part string // part of the module at fault: import, export, table, global, element, data or module
	Name string // name of the import or export
	Err  error  // what was expected, and the remedy
}

func (e *ModuleError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: %v", e.Part, e.Err)
	}
	return fmt.Sprintf("%s %q: %v", e.Part, e.Name, e.Err)
}

// Unwrap returns [ErrABI] and the cause.
func (e *ModuleError) Unwrap() []error { return []error{ErrABI, e.Err} }

// Blame returns an error of the compiler as a [*ModuleError] if the module is at fault, and
// otherwise unchanged.
func Blame(err error) error {
	if e, ok := errors.AsType[*compiler.Error](err); ok {
		return &ModuleError{Part: e.Part, Err: e}
	}
	return err
}
