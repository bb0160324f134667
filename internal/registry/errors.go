package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"regexp"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// Reasons to refuse a reference, a registry's response or an entry in the store.
var (
	ErrReference   = errors.New("invalid reference")
	ErrNotFound    = errors.New("the registry does not have it")
	ErrDenied      = errors.New("the registry refuses access")
	ErrNoPlugin    = errors.New("not a WebAssembly plugin")
	ErrDigest      = errors.New("wrong digest")
	ErrSize        = errors.New("wrong size")
	ErrTooLarge    = errors.New("too large")
	ErrAmbiguous   = errors.New("ambiguous")
	ErrRedirect    = errors.New("unsafe redirect")
	ErrCredentials = errors.New("the credentials stay here")
	ErrPlainHTTP   = errors.New("plain HTTP")
	ErrTimeout     = errors.New("the registry is too slow")
	ErrUnsafe      = errors.New("unsafe image layer")
	ErrNotStored   = error(notStored{}) // also matches fs.ErrNotExist
	ErrDamaged     = errors.New("damaged in the store")
)

// Error names the source for which an operation failed. Its Err matches one of the errors of
// this package, or is a network or disk error.
type Error struct {
	Source string // source, as returned by [Reference.String]
	Err    error
}

// queries matches the queries of URLs, which may contain secrets: storage services put
// signatures there.
var queries = regexp.MustCompile(`\?[^\s"']+=[^\s"']*`)

func (e *Error) Error() string {
	return e.Source + ": " + queries.ReplaceAllString(e.Err.Error(), "?…")
}
func (e *Error) Unwrap() error { return e.Err }

type notStored struct{}

func (notStored) Error() string        { return "not in the store" }
func (notStored) Is(target error) bool { return target == fs.ErrNotExist }

// failed returns the error of an operation on a reference. It replaces the library's errors
// by those of this package.
func failed(ctx context.Context, ref Reference, err error) error {
	var response *errcode.ErrorResponse
	cause := context.Cause(ctx)

	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*Error)):
		return err
	case errors.Is(cause, ErrTimeout):
		err = cause
	case errors.Is(err, errdef.ErrNotFound):
		err = fmt.Errorf("%w: check the name and the tag", ErrNotFound)
	case errors.Is(err, auth.ErrBasicCredentialNotFound), errors.As(err, &response) && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden):
		err = fmt.Errorf("%w: %w: docker login %s stores credentials", ErrDenied, err, ref.Registry)
	case errors.Is(err, content.ErrMismatchedDigest):
		err = fmt.Errorf("%w: %w", ErrDigest, err)
	}
	return &Error{ref.String(), err}
}
