package wire

// A Code says why a request was refused, or why a call had no result. Codes are
// stable: programs branch on them, and on nothing else of a [Problem].
type Code string

// The codes that any transport may meet.
const (
	CodeInvalid     Code = "invalid"     // a field, parameter or argument is wrong
	CodeDenied      Code = "denied"      // the tool lacks a grant, or nobody approved the call
	CodeNotFound    Code = "not_found"   // no such tool, run, schedule, file or path
	CodeConflict    Code = "conflict"    // the idempotency key belongs to another request, or the thing has changed meanwhile
	CodeUnsupported Code = "unsupported" // the tool cannot do that, such as run in the background
	CodeLimit       Code = "limit"       // a limit on runs, schedules, records or open requests is reached
	CodeInternal    Code = "internal"    // the host failed; its log has the details
	CodeClosing     Code = "closing"     // the server is shutting down
	CodeCanceled    Code = "canceled"    // the caller gave up
)

// The codes of calls that ran and had no result of the tool.
const (
	CodeFuel       Code = "fuel"
	CodeMemory     Code = "memory"      // the limit of the call
	CodeHostMemory Code = "host_memory" // the limit of the host
	CodeTime       Code = "time"
	CodeOutput     Code = "output"
	CodeFiles      Code = "files"  // the process has too many open files
	CodeTrap       Code = "trap"   // the plugin crashed
	CodePlugin     Code = "plugin" // the plugin breaks the contract
)

// The codes that only HTTP has.
const (
	CodeUnauthorized Code = "unauthorized"       // the bearer token is missing or wrong
	CodeForbidden    Code = "forbidden"          // the request comes from another site's page, has a wrong host name, or is a user's for what is the operator's
	CodeScope        Code = "insufficient_scope" // the access token lacks a scope
	CodeMethod       Code = "method_not_allowed"
	CodeTimeout      Code = "timeout"            // the body of the request came too slowly
	CodeTooLarge     Code = "too_large"          // the body of the request
	CodeMediaType    Code = "media_type"         // the body of the request is not application/json, or is compressed
	CodeRange        Code = "range"              // the output does not reach that far
	CodeIssuer       Code = "issuer_unavailable" // access tokens cannot be checked now
)

// A Problem is the body of every answer that is an error: problem details of
// RFC 9457, with a code and details that help to fix the request.
type Problem struct {
	Type   string   `json:"type"` // where the code is described
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail,omitempty"`
	Code   Code     `json:"code"`
	Field  string   `json:"field,omitempty"`  // of CodeInvalid: which field, parameter or header
	Max    int      `json:"max,omitempty"`    // of CodeLimit: the limit; bytes for records
	Active []string `json:"active,omitempty"` // of CodeLimit and CodeNotFound: active runs of the session
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }
