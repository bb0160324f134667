// Package guestcall implements the operations that a guest can call. They check the
// grants, charge the guest, and use the services that the caller of the host offers.
package guestcall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/calltree"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/host/internal/sched"
	"github.com/toolhost/toolhost/internal/egress"
)

// Services holds the services that the caller of a host offers to the operations of a call.
// Operations that need a service that is nil are denied.
type Services struct {
	May         func(ctx context.Context) error
	Checkpoint  *Checkpoint
	Receive     Receive
	Values      Values
	KV          Values
	Secrets     egress.Secrets
	Ask         func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	CallTool    func(ctx context.Context, t ToolCall) (abi.Result, error)
	SearchTools func(q ToolSearch) abi.FoundTools
}

// Observers follow the operations of a call. Each may be nil.
type Observers struct {
	OnProgress  func(answer.Progress)
	OnUngranted func(tool string, times int)
	OnHTTP      func(egress.Exchange)
}

// Suspension lets operations act on the stored state of a call.
type Suspension interface {
	// Forget removes the stored state before an operation that invalidates it.
	Forget()
	// Cancel cancels a started operation, and reports whether the call has started one with this
	// id.
	Cancel(operation int32) bool
	// Act removes the stored state before a side effect that it does not record, if the
	// call needs at-most-once semantics.
	Act()
	// Saved is called after a checkpoint was saved.
	Saved() error
	// AskAgain returns a function that asks the user questions and can be repeated when the
	// call continues, or nil if there is none.
	AskAgain(operation int32) func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	// CrashPolicy decides how a nested call survives a crash, if the call can be
	// suspended.
	CrashPolicy(operation int32, t ToolCall) (p CrashPolicy, suspendable bool)
}

// Call is a running call whose guest uses operations. It belongs to the guest's
// goroutine.
type Call struct {
	Plugin, Tool, ID, Session string
	Client                    string // key of the client, for fairness
	Readonly                  bool   // the tool's readonly hint
	Describing                bool   // whether the guest is writing its manifest
	Grant                     *grant.Grant
	Memory, Fuel              int64 // limits of the call
	Services
	Observers

	Context    context.Context // context of the call
	Stopping   <-chan struct{} // closed to ask the tool to finish soon
	Log        *slog.Logger
	Operations map[string]Operation // operations by name
	Egress     *egress.Client
	Guest      *sched.Guest
	Meter      *meter.Meter
	Tree       *calltree.Caller // the call and its nested calls
	Answer     *answer.Answer
	Suspension Suspension

	Response []byte          // value of abi.FieldResponse; nil before the first host call
	Said     answer.Progress // last report from the guest
	Effect   Effect          // the operation whose first half is running
	Web      *web            // HTTP state of the call; nil before the first HTTP request
	beyond   ungranted

	unanswered atomic.Bool // the call ran out of time while it asked its user
}

// Operation is a function of a capability. Its first half, begin, runs on the guest's
// goroutine: it checks the request and charges for it. It must not keep the request, which
// is guest memory. It returns the work to wait for, or nil and the answer: the length of
// c.Response, which it has set, or the code of a refusal.
type Operation struct {
	allowed func(c *Call) bool // whether the call may use it
	denied  string             // the error text if it may not
	begin   func(c *Call, request []byte) (Work, int32)
}

// reason says why a call may not use the operation. A readonly tool cannot write,
// whatever its plugin was granted.
func (o Operation) reason(c *Call) string {
	for _, s := range []*valueStore{&ofKV, &ofSession} {
		if c.Readonly && o.denied == s.notWritten() {
			return fmt.Sprintf("a tool with the hint readonly cannot write %s: drop the hint, or do not write", s.writing)
		}
	}
	return o.denied
}

// Work is the part of an operation that waits. It may run on any goroutine, concurrently
// with the guest, so it must not touch state that belongs to the guest's goroutine. It
// returns soon after ctx is done.
type Work func(ctx context.Context) End

// End is the outcome of a [Work]. Finish is the second half of the operation, and runs
// on the guest's goroutine: it answers as begin does.
type End struct {
	Finish func() int32
	Bytes  int  // approximate size of the outcome on the heap until Finish has run, in bytes
	Cut    bool // whether ctx was done before the work was, so that the operation can be repeated
}

// Effect describes an operation while its first half runs.
type Effect struct {
	ID            int32 // id of a started operation; 0 if the guest waits for it in place
	Detached      bool  // whether it is a detached tool call
	AtMostOnce    bool  // whether it needs at-most-once semantics
	TakesMessages bool  // whether it removes messages: the call can then continue only from a state that contains them
}

// atOnce makes a begin function for an operation that does not wait, or only briefly.
func atOnce(answer func(c *Call, request []byte) int32) func(*Call, []byte) (Work, int32) {
	return func(c *Call, request []byte) (Work, int32) { return nil, answer(c, request) }
}

// maxOp is the longest name of an operation, in bytes.
const maxOp = 64

// Perform begins an operation and waits for it to end.
func (c *Call) Perform(name, request []byte) int32 {
	c.Effect = Effect{}
	work, code := c.Operation(name, request)
	if work == nil {
		return code
	}
	switch {
	case c.Effect.TakesMessages:
		c.Suspension.Forget()
	case c.Effect.AtMostOnce:
		c.Suspension.Act()
	}

	c.Guest.Idle()
	ended := work(c.Context)
	c.Guest.Compute()
	c.Meter.Check() // a call that has to end ends here
	return ended.Finish()
}

// Operation begins an operation, if the call is allowed to use it.
func (c *Call) Operation(name, request []byte) (Work, int32) {
	op := string(name[:min(len(name), maxOp+1)])
	c.Meter.Charge(len(request))
	if c.Describing {
		return nil, c.deny("a plugin cannot call the host while it describes itself")
	}

	o, known := c.Operations[op]
	if !known {
		message := "this host has no such capability"
		if near := abi.Nearest(op, slices.Sorted(maps.Keys(c.Operations))); near != "" {
			message += fmt.Sprintf(", did you mean %q?", near)
		}
		return nil, c.Refuse(abi.CallUnknown, "unknown", message)
	}

	if !o.allowed(c) {
		return nil, c.deny(o.reason(c))
	}
	if c.May != nil && c.May(c.Context) != nil {
		return nil, c.RefuseStopped()
	}
	return o.begin(c, request)
}

// decodeStrict reads a request without unknown fields.
func decodeStrict(request []byte, into any) error {
	strict := json.NewDecoder(bytes.NewReader(request))
	strict.DisallowUnknownFields()
	return strict.Decode(into)
}

// respond sets the response of an operation.
func (c *Call) respond(response []byte) int32 {
	c.Response = response
	c.Meter.Charge(len(response))
	return int32(len(response))
}

func (c *Call) deny(why string) int32 { return c.Refuse(abi.CallDenied, "denied", why) }

// RefuseStopped answers an operation that cannot continue because the call was asked to
// stop.
func (c *Call) RefuseStopped() int32 {
	return c.Refuse(abi.CallCanceled, "canceled", "the call is being stopped")
}

// RefuseCanceled answers an operation that cannot continue because the call was asked to
// stop, or because the guest canceled the operation.
func (c *Call) RefuseCanceled() int32 {
	if c.IsStopping() {
		return c.RefuseStopped()
	}
	return c.Refuse(abi.CallCanceled, "canceled", "the operation was canceled")
}

func (c *Call) Refuse(code int32, name, message string) int32 {
	c.Response = JSON(abi.CallFailure{Code: name, Message: message})
	return code
}

// Outside runs a function of the caller. A panic in it does not count as a crash of the
// guest.
func (c *Call) Outside(f func()) {
	c.Guest.Lend()
	defer c.Guest.Reclaim()
	defer func() {
		if r := recover(); r != nil {
			panic(&instance.Stop{Reason: fmt.Errorf("a writer or a function of the caller panicked: %v", r)})
		}
	}()
	f()
}

// acting wraps the begin function of an operation that is done at once, with
// at-most-once semantics.
func acting(begin func(*Call, []byte) (Work, int32)) func(*Call, []byte) (Work, int32) {
	return func(c *Call, request []byte) (Work, int32) {
		c.Suspension.Act()
		return begin(c, request)
	}
}

// IsStopping reports whether the tool was asked to stop.
func (c *Call) IsStopping() bool {
	select {
	case <-c.Stopping:
		return true
	default:
		return false
	}
}

// cancelOperation takes {"id"} and cancels a started operation. An operation that has
// ended is left as it is, even if the guest has not received its end.
func cancelOperation(c *Call, request []byte) int32 {
	var in struct {
		ID *int32 `json:"id"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.ID == nil || *in.ID < 1 || !c.Suspension.Cancel(*in.ID) {
		return c.Refuse(abi.CallInvalid, "invalid", `expected {"id": what call_start returned}`)
	}
	return c.respond([]byte("{}"))
}
