package compiler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// RefusedError says why a module cannot be rewritten or compiled under any limits.
type RefusedError struct {
	Part string // of the module, such as import or table; module if it is none in particular
	Err  error
}

func (e *RefusedError) Error() string { return e.Part + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

func refuse(err error) error { return &RefusedError{Part: "module", Err: err} }

// errCompile is why the runtime refuses a module.
var errCompile = errors.New("it does not compile")

// refusedByRuntime tells an error of the module from one of the folder that the
// runtime writes its code to.
func refusedByRuntime(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return err
	}
	return RefuseCompile(err)
}

// RefuseCompile returns a [*RefusedError] for an error of the runtime.
func RefuseCompile(err error) error { return refuse(fmt.Errorf("%w: %w", errCompile, err)) }

// LimitError says that a build exceeded a limit. It may succeed with a higher one.
type LimitError struct {
	Memory    int64         // bytes, or 0
	Processor time.Duration // processor time, or 0
	Wall      time.Duration // real time, or 0
}

func (e *LimitError) Error() string {
	switch {
	case e.Memory > 0:
		return fmt.Sprintf("compiling it takes more than the %d MiB of memory allowed", e.Memory>>20)
	case e.Processor > 0:
		return fmt.Sprintf("compiling it takes more than the %v of processor time allowed", e.Processor)
	}
	return fmt.Sprintf("compiling it takes longer than %v", e.Wall)
}

// CrashError says that the module crashed the compiler.
type CrashError struct{ Reason string }

func (e *CrashError) Error() string { return "compiling it ended with: " + e.Reason }
