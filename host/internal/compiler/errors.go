package compiler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Errors for modules that might compile with other limits or with another compiler.
var (
	ErrLimit = errors.New("compile limit reached")
	ErrCrash = errors.New("the compiler crashed")
)

// ErrSpace means that the disk is too full for the compiled code.
var ErrSpace = errors.New("the disk of the server is full, so the plugin cannot be compiled: try again when the operator has made room")

// Kind says how compiling a module failed.
type Kind string

// The kinds.
const (
	Refused   Kind = "refused"   // refused, whatever the limits are
	Crashed   Kind = "crashed"   // the compiler crashed
	Memory    Kind = "memory"    // the memory limit was exceeded
	Processor Kind = "processor" // the limit on processor time was exceeded
	Wall      Kind = "time"      // the limit on real time was exceeded
	Excess    Kind = "excess"    // more files or threads than any build needs
)

// Error says why a module cannot be compiled. A child process answers with its JSON form,
// which is also stored in the code cache.
type Error struct {
	Kind   Kind   `json:"kind"`
	Part   string `json:"part"` // part of the module at fault: import, table, global, element, data or module
	Reason string `json:"reason"`
	cause  error  // nil if decoded from JSON
}

func (e *Error) Error() string {
	switch e.Kind {
	case Refused:
		return e.Reason
	case Crashed:
		return ErrCrash.Error() + ": " + e.Reason
	}
	return ErrLimit.Error() + ": " + e.Reason
}

// Unwrap returns ErrLimit, ErrCrash or the cause.
func (e *Error) Unwrap() error {
	switch e.Kind {
	case Refused:
		return e.cause
	case Crashed:
		return ErrCrash
	}
	return ErrLimit
}

func refuse(err error) error {
	return &Error{Kind: Refused, Part: "module", Reason: err.Error(), cause: err}
}

func exceeded(kind Kind, format string, limit any) error {
	return &Error{Kind: kind, Part: "module", Reason: fmt.Sprintf("compiling it takes "+format, limit)}
}

// RefuseCompile returns an [*Error] for an error of the runtime.
func RefuseCompile(err error) error { return refuse(fmt.Errorf("it does not compile: %w", err)) }

// refusedByRuntime returns an [*Error] for an error of the runtime, unless the cause
// is the folder that the runtime writes code to.
func refusedByRuntime(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return err
	}
	return RefuseCompile(err)
}
