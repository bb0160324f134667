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
	// Continue is the state of a call that was suspended, from Suspend.Keep. The call
	// continues from there if the plugin file, the tool, the arguments and the Policy
	// are the same; otherwise it ends with [ErrState]. The state is not trusted more
	// than a plugin.
	Continue []byte
	Observers
	Services
}

// Traits are the parts of a tool's manifest that the host needs.
type Traits struct {
	Plugin string // its name, for errors and logs
	// For a command: its command line, its stdin (nil means the arguments as JSON), and
	// the environment from its manifest.
	Argv  abi.Argv
	Stdin *string
	Env   map[string]string
	// For an Extism plugin: the function that is called, if it has another name than
	// the tool, and a template of its input (nil means the arguments as JSON). For a
	// hyper-mcp plugin: its name for the tool.
	Function string
	Input    *string
	MCPTool  string
	// HostFunctions are those of its manifest.
	HostFunctions map[string]string
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
	// Progress gets the tool's progress and status reports.
	Progress func(Progress)
	// Admitted is called when a call that is not Background has its slot among
	// Config.TotalCalls. detach returns the slot early, and the call continues as a
	// background call. It may be called at any time, and more than once.
	Admitted func(detach func())
	// Ungranted is called at the end of a call whose plugin has called a tool that it was
	// not granted: once for each of the first 16 tools, and once for all others together,
	// which are named "(others)".
	Ungranted func(tool string, times int)
	// HTTP is called after each HTTP request, and each hop of a redirect, has ended or was
	// refused, before the plugin gets the response.
	HTTP func(Exchange)
	// Used is called when the call begins. soFar returns the usage of the call so far,
	// without its output. The fuel and memory may lag behind by up to 100,000 units of
	// fuel. It may be called at any time, by any goroutine.
	Used func(soFar func() abi.Usage)
}

// Services are offered to a call by its caller. A nil service is denied.
type Services struct {
	// May is called before each operation of the plugin. If it returns an error, the
	// operation is refused as in a call that is being stopped. It must not block. Nil
	// allows all operations.
	May func(ctx context.Context) error
	// Checkpoint is the resume point of a background run.
	Checkpoint *Checkpoint
	// Suspend lets the call give up its instance while it waits.
	Suspend *Suspend
	// Receive waits for messages to a background run with ids above after, and returns
	// some or all of them in order. It returns none when wait is over, ctx is done or
	// the tool was asked to stop. Messages up to after are acknowledged, and are not
	// returned again. An error that matches ErrDenied means that the call is not a run
	// yet. The plugin does not see any other error: Receive should log it.
	Receive Receive
	// Values are the values of the session.
	Values Values
	// KV has the values of the plugin's key-value store.
	KV Values
	// Secrets has the values that the rules of the plugin add to HTTP requests. A call
	// that needs a secret without a value ends with a required connection. Nil means no
	// secrets.
	Secrets Secrets
	// Ask puts questions to the user and waits for the answers. It must return soon
	// after ctx is done, which also happens when the tool is asked to stop. The plugin
	// sees the text of an error that matches [ErrDenied].
	Ask func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	// CallTool calls another tool, and returns how that ended as [Host.Call] does. An
	// error that is a [*Refusal] says why there was no call.
	CallTool func(ctx context.Context, t ToolCall) (abi.Result, error)
	// SearchTools finds tools among those that the plugin may call. It must not block.
	SearchTools func(q ToolSearch) abi.FoundTools
}
