package host

import (
	"context"
	"encoding/json"
	"io"

	"github.com/toolhost/toolhost/abi"
)

// Call is one call of a tool.
type Call struct {
	Tool   string          // its name in the plugin
	Args   json.RawMessage // an object; empty means {}
	Policy Policy
	Traits // of the tool

	ID string // for logs and the plugin
	// Session is the session of the call. Calls wait by client (see [Config.Shared]):
	// all sessions USER/NAME of one USER are one client, any other session is a client
	// by itself, and all calls without a session are one client.
	Session string
	Attempt int // 0 means 1
	Locale  string
	// Background exempts the call from Config.TotalCalls. The caller limits its own
	// background calls.
	Background bool

	// Stopping is closed to ask the tool to finish soon: every function of the contract
	// then returns abi.Canceled. A tool that ignores it runs until the context ends. Nil
	// never asks.
	Stopping <-chan struct{}
	// Caller is the call that makes this one and waits for it, from the [ToolCall] that
	// it made; nil for none. This one has no slots of its own, and its fuel is the
	// caller's: it may use what that has left. Give it the caller's context.
	Caller *Caller
	// Continue is the state of a call that was suspended, from Suspend.Keep. The call goes
	// on from there if it is of the same plugin file, and of the same tool, arguments and
	// Policy: otherwise it ends with ErrState. It is trusted no more than a plugin.
	Continue []byte
	Observers
	Services
}

// Traits are the parts of a tool's manifest that the host needs.
type Traits struct {
	Plugin string // its name, for errors and logs
	Argv   bool   // pass the arguments as flags too, to a command
	// Serial keeps the Serial calls of a session to this module from overlapping.
	// They run in the order of arrival.
	Serial bool
	// Readonly is the tool's hint, for which its folders are mounted read-only. The
	// error of a tool that tries to write nevertheless mentions it.
	Readonly bool
	// ImpureInit makes the plugin start up anew for each call, as its manifest
	// requests with pure_init: false. Otherwise a call may continue from a copy of an
	// instance that has just started up under the same policy.
	ImpureInit bool
}

// Observers follow a call. Each may be nil.
type Observers struct {
	// Stdout and Stderr get live output as it is written. One goroutine at a time
	// uses them. They should not block for long: the time of the call runs meanwhile.
	Stdout, Stderr io.Writer
	// Progress gets the reports of the tool: on how far it is, and on its status.
	Progress func(Progress)
	// Admitted is called when a call that is not Background has its slot among
	// Config.TotalCalls. detach returns the slot early, and the call continues as a
	// background call. It may be called at any time, and more than once.
	Admitted func(detach func())
	// Ungranted is called when the plugin calls a tool that it was not granted.
	Ungranted func(tool string)
	// Leak is called when the plugin has put a secret into the request of an operation,
	// which was refused: once for a call.
	Leak func(operation, secret string)
	// HTTP is called after each HTTP request, and each hop of a redirect, has ended or was
	// refused, before the plugin gets the response.
	HTTP func(Exchange)
	// Used is called when the call begins. soFar returns what the call has used, without
	// the bytes of its output; its fuel and memory may be up to 100,000 units of fuel old.
	// It may be called at any time, by any goroutine.
	Used func(soFar func() abi.Usage)
}

// Services are offered to a call by its caller. Each nil one is denied.
type Services struct {
	// Checkpoint is the resume point of a background run.
	Checkpoint *Checkpoint
	// Suspend lets the call give up its instance while it waits.
	Suspend *Suspend
	// Receive returns messages to a background run in their order: all or some of
	// those after the id after, once there is one, or none when wait is over, ctx is
	// done or the tool was asked to stop. The plugin has taken those up to after: they
	// are not returned again. An error that matches ErrDenied means that the call is
	// not a run yet. The plugin does not see any other error: Receive should log it.
	Receive Receive
	// Values are those of the session.
	Values Values
	// KV are those of the plugin's key-value store.
	KV Values
	// Secrets are the values that go into HTTP requests by the rules of the plugin. A
	// call that needs one that has no value ends: it requires a connection. Nil has none.
	Secrets Secrets
	// Ask puts questions to the user and waits for the answers. It must return soon
	// after ctx is done, which also happens when the tool is asked to stop. The plugin
	// sees the text of an error that matches [ErrDenied].
	Ask func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	// CallTool calls another tool, and returns how that ended as [Host.Call] does. An
	// error that is a [*Refusal] says why there was no call.
	CallTool func(ctx context.Context, t ToolCall) (abi.Result, error)
	// SearchTools finds tools among those that the plugin may call. It does not wait for
	// anything.
	SearchTools func(q ToolSearch) abi.FoundTools
}
