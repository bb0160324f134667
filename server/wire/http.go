package wire

// The headers of the HTTP API.
const (
	// SessionHeader names the session a request is for: 1 to 128 letters, digits
	// and . _ : @ -. Without it the session is [DefaultSession].
	SessionHeader = "Toolhost-Session"
	// KeyHeader is the idempotency key of a spawn, up to 128 characters.
	KeyHeader = "Idempotency-Key"
	// AttemptHeader is the attempt of the run whose output an answer is.
	AttemptHeader = "Toolhost-Attempt"
)

// DefaultSession is the session of requests that name none.
const DefaultSession = "default"

// The events of a followed output.
const (
	StreamOutput = "output" // an [Output]
	StreamRun    = "run"    // a [Run] whose status, detail or progress has changed
	StreamEnd    = "end"    // a [Run] that has ended: the last event
)
