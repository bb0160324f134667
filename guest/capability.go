package guest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/typed"
)

// Host calls the host's capability op with the request as JSON, and decodes the response into
// response, a pointer or nil. The error is a [*HostError] if the host refuses or fails. Other
// goroutines run while Host waits.
func (c *Call) Host(op string, request, response any) error {
	return c.HostContext(context.Background(), op, request, response)
}

// HostContext is like [Call.Host], but cancels the operation when ctx is done. It then returns
// the error of ctx, unless the operation has already ended. Only operations that wait can be
// canceled.
func (c *Call) HostContext(ctx context.Context, op string, request, response any) error {
	data, err := typed.Marshal(request)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}

	code, answer := c.operation(ctx.Done(), op, data)
	if code < 0 {
		if err := ctx.Err(); err != nil && code == abi.CallCanceled {
			return err
		}
		return c.failure(op, code, answer)
	}
	if response == nil {
		return nil
	}

	return json.Unmarshal(answer, response)
}

// awaiter is a Host in which several goroutines can wait for operations concurrently.
type awaiter interface {
	// Await calls an operation and returns its response, with the code that Call
	// would return. It cancels the operation once done is closed.
	Await(done <-chan struct{}, op string, request []byte) (code int32, response []byte)
}

// operation calls an operation and returns its response.
func (c *Call) operation(done <-chan struct{}, op string, request []byte) (code int32, response []byte) {
	if a, ok := c.host.(awaiter); ok && waits(op) && len(request) <= abi.MaxStart {
		return a.Await(done, op, request)
	}

	c.calling.Lock()
	defer c.calling.Unlock()
	code = c.host.Call(op, request)
	return code, c.read(abi.FieldResponse)
}

// waits reports whether an operation waits for something outside the guest.
func waits(op string) bool {
	switch op {
	case "sleep", "ask", "http", "messages.receive", "tool.call", "tool.search":
		return true
	}
	return false
}

func (c *Call) failure(op string, code int32, answer []byte) error {
	var f abi.CallFailure
	if json.Unmarshal(answer, &f) != nil || f.Code == "" {
		f = abi.CallFailure{Code: "failed", Message: "the host did not say why"}
	}
	if code == abi.CallCanceled {
		f.Code = "canceled"
		c.canceled.Store(true)
	}
	return &HostError{Op: op, Code: f.Code, Message: f.Message}
}

// Sleep waits for d, rounded up to a whole millisecond. If the call is stopped, it returns
// early with an error matching [ErrCanceled]. If the clock is not granted, the error matches
// [ErrDenied].
func (c *Call) Sleep(d time.Duration) error {
	if d <= 0 {
		return c.Err()
	}
	request := struct {
		MS int64 `json:"ms"`
	}{int64((d-1)/time.Millisecond) + 1}
	return c.Host("sleep", request, nil)
}

type checkpoint struct {
	Data []byte `json:"data,omitempty"`
}

// SaveCheckpoint stores up to 1 MiB with a background run, in place of an earlier checkpoint,
// so that its next attempt can resume. If it returns nil, the checkpoint has been saved
// durably. It waits while the host's disk is full. It costs a million units of fuel and a write
// to disk, so save only every few seconds of work. In a call that is not a background run it
// does nothing and returns nil.
func (c *Call) SaveCheckpoint(data []byte) error {
	return unlessDenied(c.Host("checkpoint.save", checkpoint{data}, nil))
}

// LoadCheckpoint returns the checkpoint that earlier attempts of the run saved last, or nil.
func (c *Call) LoadCheckpoint() ([]byte, error) {
	var saved checkpoint
	err := c.Host("checkpoint.load", struct{}{}, &saved)
	return saved.Data, unlessDenied(err)
}

// unlessDenied drops an error that matches [ErrDenied].
func unlessDenied(err error) error {
	if errors.Is(err, ErrDenied) {
		return nil
	}
	return err
}

type report struct {
	Status  *string `json:"status,omitempty"`
	Unit    *string `json:"unit,omitempty"`
	Summary *string `json:"summary,omitempty"`
}

// Status reports in a few words what the tool is doing. The text replaces the previous status.
// The host shows about 200 characters of it. A host that does not support this ignores the
// report.
func (c *Call) Status(text string) error { return c.report(report{Status: &text}) }

// ProgressUnit sets the unit of the numbers that [Call.Progress] reports from then on, such as
// "files". A host that does not support this ignores it.
func (c *Call) ProgressUnit(unit string) error { return c.report(report{Unit: &unit}) }

// Summary reports the outcome of the call in a sentence or two, for notices and lists that do
// not show the result. The host keeps about 500 characters of the last summary. A host that
// does not support this ignores the report.
func (c *Call) Summary(text string) error { return c.report(report{Summary: &text}) }

func (c *Call) report(r report) error {
	err := c.Host("report", r, nil)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return err
}

// Question is one form for the user, and Answer is the reply. [abi.Questions]
// states the rules.
type (
	Question = abi.Question
	Answer   = abi.Answer
)

// Ask asks the user all questions at once, each under a key that the plugin chooses, and waits
// for the answers. Ask before the tool changes anything: a client may answer by repeating the
// call, which runs the tool from its beginning. If asking is not granted, or the client cannot
// ask, the error matches [ErrDenied].
func (c *Call) Ask(questions map[string]Question) (map[string]Answer, error) {
	var out abi.Answers
	err := c.Host("ask", abi.Questions{Questions: questions}, &out)
	return out.Answers, err
}

// Form makes a question whose answer is an object described by a JSON schema.
func Form(message, schema string) Question {
	return Question{Message: message, Schema: json.RawMessage(schema)}
}
