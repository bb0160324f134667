package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/calllog"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/repeat"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/wire"
)

// MaxArgs is the maximum size of the arguments of a call, in bytes: 8 MiB.
const MaxArgs = catalog.MaxArgs

// MaxKey is the maximum length of an idempotency key, in characters: 128.
const MaxKey = repeat.MaxKey

// Request is one call to a tool.
type Request struct {
	Session string          // name of the call's session, to which its background runs belong
	Tool    string          // name of the tool, as in Definitions
	Args    json.RawMessage // a JSON object; nil means {}
	Parsed  Args            // parsed arguments, instead of Args
	Limits  Limits          // limits set by the caller, cut to the operator's maximum; later attempts of a parked call keep them
	Locale  string          // BCP 47 tag of the user's language, at most MaxLocale bytes; empty if unknown
	// DryRun makes a call that changes nothing, like one with the context of [WithDryRun].
	DryRun bool
	// Unnamed means that the caller did not name the session. Its later calls may be in
	// another session, so no result promises that a later one will report the end of a run.
	Unnamed bool
	// Decide asks the caller's user about held calls: this one, and those that its tool
	// makes. If it is nil, nobody is asked, and they stay held until an operator decides.
	Decide DecideFunc
	// OneRequest means that the session is for this request only, so that no approval can
	// be kept for it.
	OneRequest bool
	// Connected means that the session ends with the caller's connection, which is the only
	// one of this process.
	Connected bool
	// Resumes is the id of the run of an earlier request, with the same tool and arguments,
	// that was answered with [ErrAskAgain]. The call continues that run.
	Resumes string

	// Key is an idempotency key of at most MaxKey characters, made by the calling program,
	// never by a model; empty means no key. A call with a key is a run of the session from
	// its start. A repeat with the same key, tool and arguments waits for that run or
	// returns its result, as long as the run is kept: nothing runs twice, even after a
	// crash. The same key with another tool or other arguments is an error with the code
	// [wire.CodeConflict]. If the context ends, the call continues without the caller, see
	// [ErrCancel].
	Key string

	// ParkAfter is how long the caller waits before the call continues in the background,
	// if it may be parked. It can only shorten Config.ParkAfter, which is its default. It
	// also limits the wait of check_background.
	ParkAfter time.Duration
	// FileName returns the name, such as a URI, by which the caller's model reads a file of
	// a run: [wire.OutputLog] or [wire.ResultJSON]. If it is nil, the name is the path below
	// Config.DataDir.
	FileName func(task, file string) string
	// OnStored is called if the value of the result is larger than Config.Answer, with the
	// id of the run that keeps it in the file [wire.ResultJSON]. To keep it, a call that may
	// be parked becomes a run when it ends. If OnStored is nil, no value is stored because
	// of its size.
	OnStored func(task string)
	// OnPark is called, before Call returns, with the run that the call has become. It may
	// be nil, because the result names the run too.
	OnPark func(wire.Run)
	// Ask asks the caller's user the plugin's questions, and waits for the answers, which are
	// checked with CheckAnswer before the plugin sees them. It is not called after Call has
	// returned. If the question comes from a tool that Tool has called, [CalledTool] of its
	// context names that tool. Ask returns ErrAskAgain if the caller ends the call, to repeat
	// it with the answers. With AskLater a parked call may ask too, see [Session.Questions];
	// without Ask, such a call is parked as soon as it asks, and the value of its result
	// contains the questions. Otherwise a nil Ask denies all questions.
	Ask      func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	AskLater bool
	// Connect asks the caller's user to set a secret on a page, and waits until it is set.
	// Then the call starts over. It returns ErrAskAgain if the caller ends the call, to repeat
	// it. If Connect is nil, nobody is asked: the result says that the user has to set the
	// secret first.
	Connect func(ctx context.Context, need SecretNeed) error

	// Stdout, Stderr and Progress get the output and progress of a plugin's tool while it
	// runs, see host.Call.
	Stdout, Stderr io.Writer
	Progress       func(Progress)
}

// Progress is a progress report of a call.
type Progress = host.Progress

// Args are arguments that were parsed strictly: a JSON object in UTF-8 without repeated names.
// They are not parsed again.
type Args = catalog.Args

// A call is one call to a tool on its way through the stages. It is a value: a stage that
// changes it passes on a copy.
type call struct {
	Request
	outer   *origin         // the call whose tool makes this one; nil for an agent's call
	run     *runs.Execution // the run in execution; nil for a call that somebody waits for
	spawn   *runs.Spawn     // the run that a session requests; nil for any other call
	child   *runs.Child     // where to put the child run that a call may become, once its checks have passed; nil for any other call
	note    *record.Note    // the entry in the records
	tool    *catalog.Tool   // the tool, once found
	allowed Limits          // the limits, once decided
	work    host.Call       // the call to the tool, once prepared
}

// A callFunc answers a call. An error without a result is explained by the stage explain,
// or ends the run.
type callFunc func(ctx context.Context, c call) (abi.Result, error)

// A stage answers a call, or passes it on, and may change the answer.
type stage func(next callFunc) callFunc

// check turns a function into a stage. The function returns the call that is passed on, or
// refuses it.
func check(f func(ctx context.Context, c call) (call, error)) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			c, err := f(ctx, c)
			if err != nil {
				return abi.Result{}, err
			}
			return next(ctx, c)
		}
	}
}

// join combines stages into one, in order.
func join(stages ...stage) stage {
	return func(next callFunc) callFunc {
		for _, s := range slices.Backward(stages) {
			next = s(next)
		}
		return next
	}
}

// chain joins stages in order. The last one passes no call on.
func chain(stages ...stage) callFunc { return join(stages...)(nil) }

// Call runs a tool of a plugin, of the program or of the agent, and waits for it. A call that
// may be parked, see [Config], becomes a background run of the session when it takes too long.
// Then the value of the result is {"type":"background","task_id":…}. Nothing is written to
// req's Stdout and Stderr, or reported to its Progress, after Call has returned.
//
// The Result is for the agent, and always valid. The error is nil if the tool returned a
// result. Otherwise it matches [plugins.ErrNoTool], [ErrApproval], an error of package host,
// or a context error. Invalid arguments are a tool error, so that a model can correct them.
func (s *Service) Call(ctx context.Context, req Request) (abi.Result, error) {
	c := call{Request: req, outer: originOf(ctx)}
	if c.outer != nil {
		return s.stages.nested(ctx, c)
	}
	return s.stages.direct(ctx, c)
}

// maxListed bounds how many calls within one call are among the latest calls, so that
// they do not displace all others.
const maxListed = 50

// origin is a call to a plugin's tool that makes another call and waits for it.
type origin struct {
	tool   *catalog.Tool
	inner  string    // name of the tool that is called
	call   host.Call // the outer call
	caller *host.Caller
	listed *atomic.Int64 // calls within the outermost call
	number int           // number of the inner call in the log of its run, see calllog
	fuel   int64         // the most fuel that the inner call may use
	outer  *origin       // call that made the outer one; nil for an agent's
}

type originKey struct{}

// CallPath returns the names of the tools whose calls led to this context, beginning with the
// tool that the agent called; nil if no call did.
func CallPath(ctx context.Context) (path []string) {
	for from := originOf(ctx); from != nil; from = from.outer {
		path = append(path, from.tool.Name)
	}
	slices.Reverse(path)
	return path
}

// CalledTool returns the name of the tool that is being called with this context, if another
// tool made the call; empty if an agent did.
func CalledTool(ctx context.Context) string {
	if from := originOf(ctx); from != nil {
		return from.inner
	}
	return ""
}

// originOf returns the tool call that makes the calls of this context, directly or
// through the program's own tools; nil if no tool does.
func originOf(ctx context.Context) *origin {
	from, _ := ctx.Value(originKey{}).(*origin)
	return from
}

// inLog returns the number of the inner call in the log of its run; 0 is the run itself.
func (from *origin) inLog() int {
	if from == nil {
		return 0
	}
	return from.number
}

// limited returns the call with its limits. A tool that makes the call can only shorten
// the time.
func (c call) limited() call {
	c.allowed = c.tool.Limit(c.Limits)
	if c.outer != nil {
		c.allowed.Timeout = min(c.allowed.Timeout, c.tool.Limit(Limits{}).Timeout)
	}
	return c
}

// callTool returns the function that makes the nested calls of a tool's call, in the same
// session and with the checks of an agent's call.
func (s *Service) callTool(tool *catalog.Tool, call host.Call, refused *record.Refusals) func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
	return func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
		log, outer := calllog.Of(ctx), originOf(ctx)
		number := log.Begin(outer.inLog(), t.Tool, "")
		if slices.Contains(agent.Names, t.Tool) {
			refused.Add(t.Tool, 1)
			log.End(number, abi.Result{}, host.ErrDenied)
			return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: t.Tool + " is a tool of the agent, which no other tool can call"}
		}
		from := &origin{tool: tool, inner: t.Tool, call: call, caller: t.Caller, listed: new(atomic.Int64), number: number, fuel: t.Fuel, outer: outer}
		if outer != nil {
			from.listed = outer.listed
		}

		r, err := s.Call(context.WithValue(ctx, originKey{}, from), Request{
			Session: call.Session, Tool: t.Tool, Args: t.Args, Limits: Limits{Timeout: t.Timeout}, Locale: call.Locale, Ask: call.Ask,
		})
		log.End(number, r, err)
		if errors.Is(err, host.ErrDenied) {
			err = &host.Refusal{Code: abi.CallDenied, Message: reason.Clip(strings.TrimPrefix(reason.Of(err).Text, host.ErrDenied.Error()+": "), reason.MaxText)}
		}
		if IsDryRun(r) {
			err = &host.Refusal{Code: abi.CallDenied, Message: "this is a dry run: " + t.Tool + " was not called, because it is not readonly"}
		}
		return r, err
	}
}

// of adds to a call what it inherits from its caller.
func (from *origin) of(call host.Call) host.Call {
	call.Caller, call.Stopping, call.Background = from.caller, from.call.Stopping, from.call.Background
	return call
}
