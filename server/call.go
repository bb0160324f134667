package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/strictjson"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// MaxArgs bounds the arguments of a call, in bytes.
const MaxArgs = 8 << 20

// MaxKey bounds the idempotency key of a call, in characters.
const MaxKey = 128

// Request is one call of a tool.
type Request struct {
	Session string          // the session of the call; background runs belong to it
	Tool    string          // as in Definitions
	Args    json.RawMessage // an object; nil is {}
	Parsed  Args            // set it instead of Args if the arguments are parsed already
	Limits  Limits          // the caller's own, cut to the operator's maximum; they apply to later attempts of a parked call too
	Locale  string          // BCP 47, at most MaxLocale bytes; empty if unknown
	// DryRun makes a call that changes nothing, as one with the context of [WithDryRun].
	DryRun bool
	// Unnamed says that nobody named the session: later calls of the caller may be in
	// another one, so nothing is promised of them.
	Unnamed bool
	// Decide asks the caller's user about calls that are held for approval: this one, and
	// those that its tool makes. Nil asks nobody: they stay held until an operator decides.
	Decide DecideFunc
	// OneRequest says that the session is of this request alone, so that no approval can be
	// kept for it.
	OneRequest bool
	// Connected says that the session ends with the caller's connection, which is the only
	// one of this process.
	Connected bool
	// Resumes is the id of the run that an earlier request with the same tool and arguments
	// has become, and that was answered with [ErrAskAgain]. The call continues with it.
	Resumes string

	// Key is an idempotency key of at most MaxKey characters, made by the program that
	// calls, never by a model; empty means no key. Such a call is a run of the session from
	// its start. A repeat with the key, the tool and the arguments waits for that run, or
	// returns its result, as long as the run is kept, and nothing runs twice: also after
	// a crash. The key with another tool or other arguments is an error of the code
	// [wire.CodeConflict]. The end of the context only leaves the call, see [ErrCancel].
	Key string

	// ParkAfter is how long the caller waits before a call that may be parked
	// continues in the background. It can only shorten Config.ParkAfter, which
	// is its default. It also limits the wait of check_background.
	ParkAfter time.Duration
	// FileName says how the caller's model reads a file of a run, [wire.OutputLog] or
	// [wire.ResultJSON]: such as by a URI. Nil is the path below Config.DataDir.
	FileName func(task, file string) string
	// OnPark is called with the run that the call has become, before Call returns.
	// It may be nil: the result names the run too.
	OnPark func(wire.Run)
	// Ask asks the caller's user the plugin's questions, and waits for the answers,
	// which are checked with CheckAnswer before the plugin sees them. It is not
	// called after Call has returned. It returns ErrAskAgain if the caller ends the
	// call, and repeats it with the answers. Nil denies all questions. With AskLater
	// a parked call may ask too: see [Session.Questions].
	Ask      func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	AskLater bool
	// Connect asks the caller's user to set a secret on a page, and waits until it is set.
	// The call is made again then, from its beginning. It returns ErrAskAgain if the caller
	// ends the call, and repeats it. Nil asks nobody: the result requires a connection.
	Connect func(ctx context.Context, need SecretNeed) error

	// Stdout, Stderr and Progress follow a plugin's tool while it runs, see
	// host.Call.
	Stdout, Stderr io.Writer
	Progress       func(Progress)
}

// Progress is a progress report of a call.
type Progress = host.Progress

// Args are arguments that were parsed strictly: a JSON object in UTF-8 without
// repeated names. They are not validated again.
type Args = strictjson.Object

var noArgs, _ = strictjson.Parse([]byte("{}"))

// parseArgs returns the arguments of a call, which may have been parsed already.
// The error is for the agent.
func parseArgs(tool string, parsed Args, raw json.RawMessage) (Args, error) {
	size := max(len(raw), len(parsed.Raw()))
	switch {
	case size > MaxArgs:
		return Args{}, reason.Refuse("the arguments have %d bytes, and at most %d are allowed", size, MaxArgs)
	case parsed.Raw() != nil:
		return parsed, nil
	case len(raw) == 0:
		return noArgs, nil
	}

	parsed, err := strictjson.Parse(raw)
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		err = reason.BadArgs(tool, []abi.Problem{wrong.Problem})
	}
	return parsed, err
}

// Call runs a tool of a plugin or of the agent, and waits for it. A call that may
// be parked, see [Config], continues as a background run of the session after that
// time. Then the value of the result is {"type":"background","task_id":…}. Nothing
// is written to req's Stdout, Stderr and Progress after Call has returned.
//
// The Result is for the agent, and valid in every case. The error is nil if the
// tool gave a result. Otherwise it matches [plugins.ErrNoTool], [ErrApproval], an
// error of package host, or a context error. Arguments that do not fit are a tool
// error, so that a model can correct them.
func (s *Service) Call(ctx context.Context, req Request) (abi.Result, error) {
	c := call{Request: req, outer: originOf(ctx)}
	if c.outer != nil {
		return s.stages.nested(ctx, c)
	}
	return s.stages.direct(ctx, c)
}
