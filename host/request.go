package host

import (
	"encoding/json"
	"io"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/calltree"
)

// Call is one call to a tool.
type Call struct {
	Tool   string          // the tool's name in the plugin
	Args   json.RawMessage // arguments, a JSON object; empty means {}
	Policy Policy
	Traits // properties of the tool

	ID string // the call's id, for logs and the plugin
	// Session is the session of the call. It also determines the call's client (see
	// [Config.Shared]): all sessions USER/NAME of one USER are one client, any other
	// session is a client by itself, and all calls without a session are one client.
	Session string
	Attempt int // number of the attempt; 0 means 1
	Locale  string
	// Background exempts the call from Config.TotalCalls. The caller limits its own
	// background calls.
	Background bool
	// Secret means that the arguments contain a secret. The log then omits the output
	// of a program that failed or crashed.
	Secret bool

	// Stopping is closed to ask the tool to finish soon: every function of the contract
	// then returns abi.Canceled. A tool that ignores this runs until the context ends. If
	// Stopping is nil, the tool is never asked.
	Stopping <-chan struct{}
	// Caller is the call that makes this one and waits for it: the Caller field of its
	// [ToolCall], or nil if there is none. This call has no slots of its own, and may use
	// the fuel that its caller has left. Pass the caller's context to [Host.Call].
	Caller *Caller
	// Continue is the state of a call that was suspended, from Suspension.Keep. The call
	// continues from there if the plugin file, the tool, the arguments and the Policy
	// are the same; otherwise it ends with [ErrState]. The state is as untrusted as a
	// plugin.
	Continue []byte
	Observers
	Services
}

// A Caller is a running call that calls other tools: see [Call.Caller]. The called
// tools use its slots, its fuel and its time. Several of them can run concurrently,
// even while the guest of the Caller computes.
type Caller = calltree.Caller

// Traits are the parts of a tool's manifest that the host needs.
type Traits struct {
	Plugin string // the plugin's name, for errors and logs
	// For commands: Argv says whether each argument is passed as --name value, and Command
	// says everything else about how the command is called.
	Argv    bool
	Command abi.Command
	// For Extism plugins: Function is the function to call, if its name differs from
	// the tool's, and Input is a template of its input (nil passes the arguments as
	// JSON). For hyper-mcp plugins: MCPTool is the plugin's own name for the tool.
	Function string
	Input    *string
	MCPTool  string
	// HostFunctions maps host functions to tools: see [abi.Manifest.HostFunctions].
	HostFunctions map[string]string
	// Serial keeps the Serial calls of a session to this module from overlapping.
	// They run in the order of arrival.
	Serial bool
	// Readonly is the tool's readonly hint. If it is set, the tool's folders are mounted
	// read-only, and the error of a tool that tries to write anyway mentions the hint.
	Readonly bool
	// ImpureInit starts the plugin up again for each call, as its manifest requests
	// with pure_init: false. Otherwise a call may continue from a copy of an instance
	// that has just started up under the same policy.
	ImpureInit bool
}

// Observers follow a call. Each may be nil.
type Observers struct {
	// Stdout and Stderr receive live output as it is written, from one goroutine at a time.
	// Their writes should not block for long: the call's time limit keeps running.
	Stdout, Stderr io.Writer
	// Progress receives the tool's progress and status reports.
	Progress func(Progress)
	// Admitted is called when a call that is not Background gets its slot among
	// Config.TotalCalls. detach returns the slot early, and the call continues as a
	// background call. detach may be called at any time, and more than once.
	Admitted func(detach func())
	// Ungranted is called at the end of a call for the tools that the plugin called
	// without a grant: once for each of the first 16 tools, and once for all others
	// together, under the name "(others)".
	Ungranted func(tool string, times int)
	// HTTP is called for each HTTP request, and for each hop of a redirect, once it has
	// ended or been refused, and before the plugin gets the response.
	HTTP func(Exchange)
	// Used is called when the call begins. soFar returns the usage of the call so far,
	// without its output. The fuel and memory may lag behind by up to 100,000 units of
	// fuel. soFar may be called at any time, by any goroutine.
	Used func(soFar func() abi.Usage)
}

// Progress is a tool's report on its progress and status: the counts with their unit, and
// what the tool is doing.
type Progress = answer.Progress

// These are the default limits of a call.
const (
	DefaultFuel    = 100_000_000_000   // units of fuel, enough for about 20 to 100 seconds of computing
	DefaultMemory  = 64 << 20          // bytes of linear memory
	DefaultOutput  = 8 << 20           // bytes written to all streams together
	DefaultTimeout = 120 * time.Second // waiting included
)

// These are the highest limits that a call can have. A memory of 4 GiB would be one page
// larger, and its length would not fit in the 32 bits that wazero has for it.
const (
	MaxFuel   = 1 << 62
	MaxMemory = 4<<30 - 64<<10 // bytes of linear memory: 65,535 pages
)

// Policy holds the limits and grants of one call. The zero Policy has the default limits
// and grants nothing: no folder, no environment, no clock (time starts in 2022 and moves
// only when the plugin sleeps or reads it) and no randomness (a fixed sequence). A call
// with the zero Policy depends only on the module and its arguments. A negative limit means
// the smallest possible one.
type Policy struct {
	Fuel    int64         // units of fuel; 0 means DefaultFuel
	Memory  int64         // bytes of linear memory, at most MaxMemory; 0 means DefaultMemory
	Output  int64         // bytes written to all streams; 0 means DefaultOutput
	Timeout time.Duration // wall time, waiting included; 0 means DefaultTimeout

	Grant
}

// withDefaults replaces zero limits with the defaults.
func (p Policy) withDefaults() Policy {
	p.Fuel = limit(p.Fuel, DefaultFuel, MaxFuel)
	p.Memory = limit(p.Memory, DefaultMemory, MaxMemory)
	p.Output = limit(p.Output, DefaultOutput, 1<<40)
	p.Timeout = limit(p.Timeout, DefaultTimeout, 1<<62)
	return p
}

func limit[T ~int | ~int64](n, zero, most T) T {
	if n == 0 {
		return zero
	}
	return min(max(n, 1), most)
}
