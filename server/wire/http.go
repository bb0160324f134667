package wire

import "strings"

// The headers of the HTTP API.
const (
	// SessionHeader names the session of a request: 1 to 128 letters, digits and
	// . _ : @ -. The operator names a session of a user as USER/NAME. A request
	// without the header gets a new session, which the response names in the same
	// header.
	SessionHeader = "Toolhost-Session"
	// ApprovalHeader carries the token that is needed to decide on approvals over TCP.
	ApprovalHeader = "Toolhost-Approval-Token"
	// KeyHeader carries the idempotency key of a call or a spawn: 1 to 128 characters.
	KeyHeader = "Idempotency-Key"
	// DryRunHeader is "true" for a dry run, which changes nothing, or "false". See
	// "Dry runs" in docs/agents.md.
	DryRunHeader = "Toolhost-Dry-Run"
	// AttemptHeader is the number of the attempt of the run that wrote the output in a
	// response.
	AttemptHeader = "Toolhost-Attempt"
)

// DefaultSession is the session that the command and package client use by default.
const DefaultSession = "default"

// UnnamedPrefix begins the name of a session that the server created for a request
// without one. The rest of the name cannot be guessed.
const UnnamedPrefix = "~/"

// The events of a stream that follows the output of a run.
const (
	StreamOutput = "output" // an [Output]
	StreamRun    = "run"    // a [Run] whose status, detail or progress has changed
	StreamEnd    = "end"    // a [Run] that has ended: the last event
)

// UserOf returns the user that a session belongs to; empty for a session of the operator.
func UserOf(session string) string {
	user, _, named := strings.Cut(session, "/")
	if !named || user+"/" == UnnamedPrefix {
		return ""
	}
	return user
}
