package runs

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/question"
)

// Cancellation causes of calls.
var (
	// ErrCancel stops a call with an idempotency key.
	ErrCancel = errors.New("the caller canceled the call")
	// ErrClosing means that the server shuts down.
	ErrClosing = errors.New("the server is shutting down")
)

// CancelsKeyed reports whether the end of a caller's context stops its keyed call.
func CancelsKeyed(cause error) bool {
	return errors.Is(cause, ErrCancel) || errors.Is(cause, question.ErrAskAgain)
}

// Canceled is the end of a call whose caller has left, whether or not the tool noticed.
func Canceled(ctx context.Context, r abi.Result) (abi.Result, error) {
	err, cause := ctx.Err(), context.Cause(ctx)
	if !errors.Is(cause, err) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return abi.Result{Kind: abi.CanceledKind, Error: cause.Error(), Usage: r.Usage}, err
}
