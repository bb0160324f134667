package host

import (
	"errors"

	"github.com/toolhost/toolhost/internal/complexity"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// checkComplexity refuses a module that is ready for the runtime and would take
// it minutes or gigabytes to compile.
func checkComplexity(wasm []byte) error {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return err
	}
	err = complexity.Check(m)
	if e := (*complexity.Error)(nil); errors.As(err, &e) && !e.Module {
		e.Function-- // the meter has added an import
	}
	return err
}
