package wasmbin

import (
	"errors"
	"fmt"
)

// The reasons for refusing a binary. Errors of this package are an [*Error] and wrap
// one of them.
var (
	// ErrMalformed means that the bytes are not a WebAssembly module.
	ErrMalformed = errors.New("malformed wasm")
	// ErrUnsupported means that the module uses a feature outside [Features].
	ErrUnsupported = errors.New("unsupported wasm")
	// ErrTruncated means that the binary ends too early. The error also matches ErrMalformed.
	ErrTruncated = errors.New("unexpected end")
)

// Error says why and where a binary was refused.
type Error struct {
	Err     error  // ErrMalformed or ErrUnsupported
	Section string // name of the section, "" for the file as a whole
	Offset  int    // offset of the byte in the binary
	Detail  string // what is wrong, and what to do where something can be done
	cause   error
}

// Error names the reason, the section, the offset and the detail.
func (e *Error) Error() string {
	where := ""
	if e.Section != "" {
		where = fmt.Sprintf("%s section at byte %#x: ", e.Section, e.Offset)
	}
	return fmt.Sprintf("%v: %s%s", e.Err, where, e.Detail)
}

// Unwrap makes errors.Is find the reason.
func (e *Error) Unwrap() []error {
	if e.cause != nil {
		return []error{e.Err, e.cause}
	}
	return []error{e.Err}
}
