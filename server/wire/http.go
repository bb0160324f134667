package wire

// The headers of the HTTP API.
const (
	// SessionHeader names the session a request is for: 1 to 128 letters, digits
	// and . _ : @ -. A request without it is in a new session of its own, which the
	// same header of the answer names.
	SessionHeader = "Toolhost-Session"
	// ApprovalHeader is the token with which approvals are decided over TCP.
	ApprovalHeader = "Toolhost-Approval-Token"
	// KeyHeader is the idempotency key of a call or a spawn, up to 128 characters.
	KeyHeader = "Idempotency-Key"
	// DryRunHeader makes a request change nothing: "true" or "false". See the dry runs
	// of docs/agents.md.
	DryRunHeader = "Toolhost-Dry-Run"
	// AttemptHeader is the attempt of the run whose output an answer is.
	AttemptHeader = "Toolhost-Attempt"
)

// DefaultSession is the session of the command and of package client, unless they
// are given another.
const DefaultSession = "default"

// UnnamedPrefix begins the name of a session that the server made for a client that
// named none. The rest of the name cannot be guessed.
const UnnamedPrefix = "~/"

// The events of a followed output.
const (
	StreamOutput = "output" // an [Output]
	StreamRun    = "run"    // a [Run] whose status, detail or progress has changed
	StreamEnd    = "end"    // a [Run] that has ended: the last event
)
