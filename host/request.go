package host

import (
	"context"
	"encoding/json"
	"io"

	"github.com/toolhost/toolhost/abi"
)

// Call is one call of a tool.
type Call struct {
	Tool   string          // as the plugin names it
	Args   json.RawMessage // an object; empty is {}
	Policy Policy
	Traits // of the tool

	ID string // for logs and the plugin
	// Session is whose call it is. Sessions USER/NAME of one USER are one client
	// where calls wait (see [Config.Shared]), any other is a client by itself, and
	// calls without a session are one together.
	Session string
	Attempt int // 0 is 1
	Locale  string
	// Background calls have a limit of their own, which the caller keeps: they do
	// not wait for one of Config.TotalCalls.
	Background bool

	// Stopping asks the tool to finish soon once it is closed: every function of the
	// contract then answers abi.Canceled. A tool that does not listen runs until the
	// context ends. Nil never asks.
	Stopping <-chan struct{}
	Observers
	Services
}

// Traits are what a manifest says of a tool, as far as the host has to know it.
type Traits struct {
	Plugin string // its name, for errors and logs
	Argv   bool   // a command: pass the arguments as flags too
	// Serial keeps calls of this module that have the same Session and are Serial
	// too from overlapping. They run in the order they came.
	Serial bool
	// ImpureInit says that the plugin must start up anew for each call, as its
	// manifest asks with pure_init: false. Else a call may continue from a copy of
	// an instance that has just started up under the same policy.
	ImpureInit bool
}

// Observers follow a call. Each may be nil.
type Observers struct {
	// Stdout and Stderr get live output as it is written. They are used by one
	// goroutine at a time and should not block for long: while they do, the call's
	// time runs.
	Stdout, Stderr io.Writer
	// Progress gets how far the tool is.
	Progress func(Progress)
	// Admitted is called when a call that is not Background has its slot among
	// Config.TotalCalls. detach gives that back before the call has ended, which
	// then continues as one in the background. It may be called at any time, also
	// more than once.
	Admitted func(detach func())
}

// Services are what a call can use of its caller. Nil denies them.
type Services struct {
	// Checkpoint is the resume point of a background run.
	Checkpoint *Checkpoint
	// Ask puts questions to the user, see abi.Questions, and waits for the answers.
	// It returns soon after ctx is done, which is also when the tool is asked to
	// stop. An error that matches [ErrDenied] says, in words for the plugin, why
	// nobody can be asked.
	Ask func(ctx context.Context, q abi.Questions) (abi.Answers, error)
}

// Progress is how far a tool says it is.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // negative if unknown
	Message string  `json:"message,omitempty"`
}
