package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/typed"
)

// Handler is the function of a tool. [Handle] makes one.
type Handler struct {
	in, out reflect.Type
	run     func(c *Call) error
}

// None is the result type of a tool that has no result, or that returns only content
// blocks (see [Call.Content]).
type None struct{}

// Handle makes a handler from a function that takes arguments and returns a result.
// The host first checks the arguments against the input schema. In is a struct. Out
// is any type that encoding/json can write, or [None]; an [any] or
// [json.RawMessage] has no output schema. The function must not use the call after
// it returns.
func Handle[In, Out any](f func(c *Call, in In) (Out, error)) Handler {
	warmUp[In, Out]()
	return Handler{
		in:  reflect.TypeFor[In](),
		out: reflect.TypeFor[Out](),
		run: func(c *Call) error {
			var in In
			if err := typed.Decode(c.read(abi.FieldArgs), &in); err != nil {
				return fmt.Errorf("the arguments do not fit: %w", err)
			}

			out, err := f(c, in)
			if err != nil {
				return err
			}
			return c.result(&out)
		},
	}
}

// warmUp makes encoding/json build its caches for the types, which takes most of the
// time of a short call. Hosts start every call from a snapshot taken after it.
func warmUp[In, Out any]() {
	defer func() { _ = recover() }() // a method of the types may panic on an empty value
	_ = typed.Decode([]byte("{}"), new(In))
	_, _ = typed.Marshal(new(Out))
}

// outputSchema returns the schema of a handler's results: nil for [None], and for a
// type that allows any value.
func outputSchema(t reflect.Type) (json.RawMessage, error) {
	if t == reflect.TypeFor[None]() {
		return nil, nil
	}
	return typed.Output(t)
}

// result writes the result of a call. It panics if the type cannot be encoded,
// because no model could react to that.
func (c *Call) result(out any) error {
	var data []byte // an empty result means that the tool has none
	if _, none := out.(*None); !none {
		var err error
		if data, err = typed.Marshal(out); err != nil {
			if errors.Is(err, typed.ErrNotUTF8) { // this depends on the data
				return fmt.Errorf("the result of tool %s: %w", c.tool, err)
			}
			panic(fmt.Sprintf("the result of tool %s cannot be written: %v", c.tool, err))
		}
	}
	if err := c.Write(abi.StreamResult, data); err != ErrCanceled {
		return err
	}
	return nil // the result was written, so it counts
}
