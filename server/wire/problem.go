package wire

// A Code is the reason why a request was refused or a call returned no result. Codes are
// stable. Programs should branch on the code, and on no other field of a [Problem].
type Code string

// The codes that all transports share.
const (
	CodeInvalid     Code = "invalid"     // a field, parameter or argument is wrong
	CodeDenied      Code = "denied"      // the tool lacks a grant, or the call was not approved
	CodeNotFound    Code = "not_found"   // no such tool, run, schedule, file or path
	CodeConflict    Code = "conflict"    // the idempotency key was used for another request, or the resource has changed
	CodeUnsupported Code = "unsupported" // the tool does not support this, such as background runs
	CodeLimit       Code = "limit"       // a limit on runs, schedules, records or open requests is reached
	CodeInternal    Code = "internal"    // the host failed; its log has the details
	CodeUnavailable Code = "unavailable" // nothing can be stored at the moment: the store of runs is unreachable, or its disk is full; the request may have taken effect
	CodeClosing     Code = "closing"     // the server is shutting down
	CodeCanceled    Code = "canceled"    // the caller canceled the request
)

// The codes of calls that started but returned no result.
const (
	CodeFuel       Code = "fuel"
	CodeMemory     Code = "memory"      // the call reached its memory limit
	CodeHostMemory Code = "host_memory" // the host reached its memory limit
	CodeTime       Code = "time"
	CodeOutput     Code = "output"
	CodeFiles      Code = "files"  // the process has too many open files
	CodeTrap       Code = "trap"   // the plugin crashed
	CodePlugin     Code = "plugin" // the plugin violated the contract
)

// The codes that are specific to HTTP.
const (
	CodeUnauthorized Code = "unauthorized"       // the bearer token is missing or wrong
	CodeForbidden    Code = "forbidden"          // the request comes from a page of another origin, has the wrong host name, or is reserved for the operator
	CodeScope        Code = "insufficient_scope" // the access token lacks a scope
	CodeMethod       Code = "method_not_allowed"
	CodeTimeout      Code = "timeout"            // the request body arrived too slowly
	CodeTooLarge     Code = "too_large"          // the request body is too large
	CodeMediaType    Code = "media_type"         // the request body is not application/json, or is compressed
	CodeRange        Code = "range"              // the range begins after the end of the output
	CodeIssuer       Code = "issuer_unavailable" // access tokens cannot be checked now
)

// A Problem is the body of every error response: problem details (RFC 9457), with a code
// and details that help to fix the request.
type Problem struct {
	Type   string   `json:"type"` // URL of the description of the code
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail,omitempty"`
	Code   Code     `json:"code"`
	Field  string   `json:"field,omitempty"`  // for CodeInvalid: the invalid field, parameter or header
	Max    int      `json:"max,omitempty"`    // for CodeLimit: the limit; in bytes for records
	Active []string `json:"active,omitempty"` // for CodeLimit and CodeNotFound: active runs of the session
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }
