package wasi

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
)

// Key is the context key under which a WASI function finds the *[Call] whose guest called
// it.
type Key struct{}

func callOf(ctx context.Context) *Call { return ctx.Value(Key{}).(*Call) }

// A Call is a running call whose guest uses WASI. It belongs to the guest's goroutine.
type Call struct {
	Ops     *guestcall.Call
	Pending interface{ Any() bool } // operations in progress
	Start   Start
	Host    Host
	Shape   contract.Shape
	Program

	// What the guest has tried to do, for hints in errors.
	Connected bool // whether it used a network function
	Outside   bool // whether it named a path that is in no granted folder

	env *Environment // environment of the instance that runs it
}

// Program says how a command is called.
type Program struct {
	abi.Command
	Argv bool // whether each argument is passed as --name value
	Args json.RawMessage
}

// A Start is the start-up of the module.
type Start interface {
	// Touched records that the guest is about to call a function.
	Touched(function string, params []uint64)
}

// A Host is what the WASI functions of a call need from the host that executes it.
type Host interface {
	// Show passes on live output.
	Show(stream abi.Stream, p []byte)
	// Fail ends the call at its next check.
	Fail(err error)
}

// MountError is the error for a granted folder that cannot be opened. Its cause names a
// folder of the host, so the agent sees only Public.
type MountError struct {
	Public error // error for the agent; matches ErrFiles if the folder itself may be fine, and otherwise grant.ErrDenied
	Cause  error
}

func (e *MountError) Error() string { return e.Public.Error() + ": " + e.Cause.Error() }

// Unwrap returns both errors.
func (e *MountError) Unwrap() []error { return []error{e.Public, e.Cause} }

// ErrFiles means that the process or the system has reached its limit of open files.
var ErrFiles = errors.New("too many open files on this host; try again later")

// sleep lets the guest sleep for d of real time. The guest gives up its processor in the
// meantime. A stop wakes it, but not from a sleep that begins later, or it would sleep again
// and again.
func (c *Call) sleep(d time.Duration) {
	stopping := c.Ops.Stopping
	if c.Ops.IsStopping() {
		stopping = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()

	c.Ops.Guest.Idle()
	select {
	case <-timer.C:
	case <-stopping:
	case <-c.Ops.Context.Done():
	}
	c.Ops.Guest.Compute()
	c.Ops.Meter.Check() // ends a call that has to end
}
