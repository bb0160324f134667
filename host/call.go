package host

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/sched"
	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/internal/fuel"
)

// errDeadline is what timeoutError matches.
var errDeadline = context.DeadlineExceeded

// Call is one call of a tool.
type Call struct {
	Plugin string          // for errors and logs
	Tool   string          // as the plugin names it
	Args   json.RawMessage // an object; empty is {}
	Argv   bool            // for a command: pass the arguments as flags too
	Policy Policy

	// Serial keeps calls of this module that have the same Session and are
	// Serial too from overlapping: they take turns, in the order they came.
	Serial bool
	// Background calls have a limit of their own, which somebody else keeps: they
	// do not wait for one of Config.TotalCalls.
	Background bool
	// Placed is told when a call that is not Background has its place among
	// Config.TotalCalls, with a function that gives it back before the call has
	// ended: it goes on as one in the background. That may be called at any
	// time, also more than once. Nil keeps the place.
	Placed func(giveBack func())
	// ImpureInit says that the plugin must start up anew for each call, as its
	// manifest asks with pure_init: false. Else a call may continue from a copy
	// of an instance that has just started up under the same policy.
	ImpureInit bool

	ID string // for logs and the plugin
	// Session is whose call it is. Sessions USER/NAME of one USER are one client
	// where calls wait (see [Config.Shared]), any other is a client by itself, and
	// calls without a session are one together.
	Session string
	Attempt int // 0 is 1
	Locale  string

	// Stdout and Stderr get live output as it is written. Nil discards. They
	// are used by one goroutine at a time and should not block for long: while
	// they do, the call's time runs.
	Stdout, Stderr io.Writer
	// Progress is told how far the tool is. Nil ignores it.
	Progress func(Progress)
	// Stopping asks the tool to finish soon once it is closed: every function
	// of the contract then answers abi.Canceled. A tool that does not listen
	// goes on until the context ends. Nil never asks.
	Stopping <-chan struct{}
	// Checkpoint is the resume point of a background run. Nil denies it.
	Checkpoint *Checkpoint
	// Ask puts questions to the user, see abi.Questions, and waits for the
	// answers. It returns soon after ctx is done, which is also when the tool is
	// asked to stop. An error that matches [ErrDenied] says, in words for the
	// plugin, why nobody can be asked. Nil denies it.
	Ask func(ctx context.Context, q abi.Questions) (abi.Answers, error)
}

// Progress is how far a tool says it is.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // negative if unknown
	Message string  `json:"message,omitempty"`
}

// call is one running call. The guest runs on the goroutine of Host.Call, so
// that nothing here needs a lock.
type call struct {
	Call
	host    *Host
	module  *Module
	client  string // that it counts for in a line
	outer   *call  // that this one was made within; nil if there is none
	turn    *turn  // that it has or waits for
	unplace func() // gives back the place among all calls, once; nil: slots.Release does
	ctx     lifetime
	started time.Time
	meter   *fuel.Meter
	guest   *sched.Guest

	instance *instance         // that runs it; nil before there is one and after
	counter  api.MutableGlobal // its fuel counter
	entered  *entry            // the function that runs; nil before and after
	stack    int64             // bytes of its stack that are paid for
	kept     int64             // bytes of arguments and results
	buffers  int64             // bytes of them that are paid for
	priming  bool              // it serves nobody: a snapshot is taken
	tainted  bool              // it may have left something in the instance that cannot be put back
	fuel     int64             // used, once it has left its instance
	peak     int64             // bytes of memory, once it has left its instance
	refused  error             // why its memory could not grow

	describing bool
	response   []byte // abi.FieldResponse; nil before the first host call

	result, errText, manifest []byte
	content                   []abi.Block
	stderr                    tail // the last words of a command
	written                   int64
	logged                    int64
	failed                    error // the first limit or broken rule a host function met
}

// Call runs a tool in a clean instance and returns what came of it: nothing of
// an earlier call is in it. It blocks until the call has left the instance.
// While there are too many calls already it waits for its turn, and its time
// runs; one whose context is that of another running call of this host waits
// for nothing (see [ErrBusy]). The Result is valid in every case. The error is
// nil for a success, a tool error and a required connection; else it is a
// [*CallError] that matches one of the reasons of this package or a context
// error.
func (h *Host) Call(ctx context.Context, m *Module, req Call) (abi.Result, error) {
	c, err := h.begin(m, req)
	if err != nil {
		return abi.Result{Kind: abi.CanceledKind, Error: err.Error()}, &CallError{Plugin: req.Plugin, Tool: req.Tool, Err: err}
	}
	defer c.end()
	c.live(ctx)
	r, err := c.outcome(c.run(&c.ctx))
	c.countEnd(r, err)
	return r, err
}

func (h *Host) begin(m *Module, req Call) (*call, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	req.Policy = req.Policy.withDefaults()
	req.Attempt = max(req.Attempt, 1)
	if len(req.Args) == 0 {
		req.Args = json.RawMessage("{}")
	}
	c := &call{Call: req, host: h, module: m, client: fair.ClientOf(req.Session), started: time.Now()}
	c.meter = fuel.NewMeter(req.Policy.Fuel, c.interrupted)
	return c, nil
}

// end gives back what the call holds.
func (c *call) end() {
	c.repay()
	c.ctx.end()
	c.host.calls.Done()
}

// facts is abi.FieldContext.
func (c *call) facts() []byte {
	facts, _ := json.Marshal(abi.Context{ // strings and numbers: it cannot fail
		CallID: c.ID, Session: c.Session, Attempt: c.Attempt, Locale: c.Locale, Config: c.Policy.Config,
		TimeoutMS: c.Policy.Timeout.Milliseconds(), Fuel: c.Policy.Fuel,
	})
	return facts
}

// interrupted says why the call has to end now, if it has to. It is asked
// before each slice of fuel and by each host function.
func (c *call) interrupted() error {
	if c.failed != nil {
		return c.failed
	}
	if err, cause := c.ctx.over(); err != nil {
		return because(err, cause)
	}
	return c.payStack()
}

// stopping reports whether the tool was asked to finish soon.
func (c *call) stopping() bool {
	select {
	case <-c.Stopping:
		return true
	default:
		return false
	}
}

// tail keeps the last bytes written to it.
type tail struct{ buf []byte }

// maxTail bounds what an error text quotes of a tool's last words, in bytes.
const maxTail = 2048

func (t *tail) write(p []byte) {
	t.buf = append(t.buf, p[max(0, len(p)-maxTail):]...)
	if len(t.buf) > 2*maxTail {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-maxTail:]...)
	}
}

func (t *tail) bytes() []byte { return t.buf[max(0, len(t.buf)-maxTail):] }
