package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// A Code says why a request was refused. Codes are stable: programs branch on
// them, and on nothing else of a [Problem].
type Code string

// The codes.
const (
	CodeInvalid      Code = "invalid"            // 400: the request has a bad field, parameter or header
	CodeUnauthorized Code = "unauthorized"       // 401: the bearer token is missing or wrong
	CodeForbidden    Code = "forbidden"          // 403: the request comes from a web page elsewhere, by a wrong host name, or of a user for what is the operator's
	CodeScope        Code = "insufficient_scope" // 403: the access token does not have all scopes
	CodeDenied       Code = "denied"             // 403: the tool was not granted what it needs, or nobody approved of the call
	CodeNotFound     Code = "not_found"          // 404: no such tool, run, schedule, artifact or path
	CodeMethod       Code = "method_not_allowed" // 405
	CodeTimeout      Code = "timeout"            // 408: the body of the request came too slowly
	CodeConflict     Code = "conflict"           // 409: the idempotency key belongs to another request, or the thing changed meanwhile
	CodeTooLarge     Code = "too_large"          // 413: the body of the request
	CodeMediaType    Code = "media_type"         // 415: the body of the request is not application/json, or is compressed
	CodeRange        Code = "range"              // 416: the output does not reach as far
	CodeUnsupported  Code = "unsupported"        // 422: the tool cannot do that, such as run in the background
	CodeLimit        Code = "limit"              // 429: no room for another run, schedule or open answer
	CodeInternal     Code = "internal"           // 500: a fault of the host; details are in its log only
	CodeClosing      Code = "closing"            // 503: the server is shutting down
	CodeIssuer       Code = "issuer_unavailable" // 503: access tokens cannot be checked now
)

// documentation is where each code is described.
const documentation = "https://github.com/toolhost/toolhost/blob/main/docs/http.md#"

// statuses are what each code comes with.
var statuses = map[Code]struct {
	status int
	title  string
}{
	CodeInvalid:      {http.StatusBadRequest, "The request is not valid"},
	CodeUnauthorized: {http.StatusUnauthorized, "A token is required"},
	CodeForbidden:    {http.StatusForbidden, "The request is refused"},
	CodeScope:        {http.StatusForbidden, "The token does not have the scope"},
	CodeDenied:       {http.StatusForbidden, "The call is not allowed"},
	CodeNotFound:     {http.StatusNotFound, "Not found"},
	CodeMethod:       {http.StatusMethodNotAllowed, "The method is not allowed"},
	CodeTimeout:      {http.StatusRequestTimeout, "The request took too long to arrive"},
	CodeConflict:     {http.StatusConflict, "In conflict with what is there"},
	CodeTooLarge:     {http.StatusRequestEntityTooLarge, "The request is too large"},
	CodeMediaType:    {http.StatusUnsupportedMediaType, "The request is not JSON"},
	CodeRange:        {http.StatusRequestedRangeNotSatisfiable, "The range is beyond the end"},
	CodeUnsupported:  {http.StatusUnprocessableEntity, "The tool cannot do that"},
	CodeLimit:        {http.StatusTooManyRequests, "A limit is reached"},
	CodeInternal:     {http.StatusInternalServerError, "Internal error"},
	CodeClosing:      {http.StatusServiceUnavailable, "The server is shutting down"},
	CodeIssuer:       {http.StatusServiceUnavailable, "Tokens cannot be checked now"},
}

// Status returns the status an answer with the code has, 0 for no code of
// those above.
func (c Code) Status() int { return statuses[c].status }

// Title returns what the code means, in a few words.
func (c Code) Title() string { return statuses[c].title }

// Sends returns the headers an answer with the code may have.
func (c Code) Sends() []Param {
	switch c {
	case CodeUnauthorized, CodeScope:
		return []Param{text("WWW-Authenticate", "how to log in")}
	case CodeRange:
		return []Param{text("Content-Range", "how many bytes there are")}
	case CodeMediaType:
		return []Param{text("Accept-Encoding", "the codings a body may have: none")}
	case CodeLimit, CodeClosing, CodeIssuer:
		return []Param{{Name: "Retry-After", Description: "seconds after which to try again", Type: "integer"}}
	}
	return nil
}

// A Problem is the body of every answer that is an error: problem details as
// of RFC 9457, with Code and what helps to mend it.
type Problem struct {
	Type   string   `json:"type"` // where the code is described
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail,omitempty"`
	Code   Code     `json:"code"`
	Field  string   `json:"field,omitempty"`  // of CodeInvalid: which field, parameter or header
	Max    int      `json:"max,omitempty"`    // of CodeLimit: the limit; bytes, where it is that of records
	Active []string `json:"active,omitempty"` // of CodeLimit and CodeNotFound: runs of the session that are active

	challenge string // for WWW-Authenticate
	retry     int    // seconds after which it may go better, for Retry-After; 0 is not told
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

func refuse(code Code, format string, args ...any) *Problem {
	s := statuses[code]
	return &Problem{
		Type: documentation + string(code), Title: s.title, Status: s.status,
		Code: code, Detail: clip(fmt.Sprintf(format, args...)),
	}
}

// invalid refuses a field, parameter or header.
func invalid(field, format string, args ...any) *Problem {
	p := refuse(CodeInvalid, "%s: %s", field, fmt.Sprintf(format, args...))
	p.Field = field
	return p
}

// maxDetail bounds the text of a problem in bytes: it may quote the request.
const maxDetail = 4 << 10

// problem maps every error to what a client is told, once and here. What
// nothing here knows is not the client's business.
func problem(err error) *Problem {
	var (
		p       *Problem
		args    *server.ArgsError
		misfit  *server.AnswerError
		refusal server.Refusal
		limit   *background.LimitError
		missing *background.NotFoundError
		field   *background.FieldError
		tooBig  *http.MaxBytesError
		place   *host.CallError
		login   *identity.Error
	)
	switch {
	case errors.As(err, &p):
	case errors.As(err, &login):
		p = loginProblem(login)
	case errors.As(err, &args):
		p = invalid("args", "%v", args)
	case errors.As(err, &misfit):
		p = invalid("answers", "%v", misfit)
	case errors.As(err, &refusal):
		p = refuse(CodeUnsupported, "%v", refusal)
	case errors.As(err, &limit):
		p = refuse(CodeLimit, "%v", limit)
		p.Max, p.Active = limit.Max, limit.Active
		if !errors.Is(limit.Err, background.ErrScheduleLimit) && !errors.Is(limit.Err, background.ErrRecordLimit) { // schedules do not end by themselves, and somebody has to see ends
			p.retry = 5
		}
	case errors.As(err, &missing):
		p = refuse(CodeNotFound, "%v", missing)
		p.Active = missing.Active
	case errors.As(err, &field):
		p = invalid(field.Field, "%s", field.Problem)
	case errors.As(err, &tooBig):
		p = refuse(CodeTooLarge, "the body has more than the %d bytes allowed", tooBig.Limit)
	case errors.Is(err, background.ErrNoSchedule):
		p = refuse(CodeNotFound, "%v", background.ErrNoSchedule)
	case errors.Is(err, background.ErrNotFound):
		p = refuse(CodeNotFound, "there is nothing by that name")
	case errors.Is(err, background.ErrKeyReused):
		p = refuse(CodeConflict, "the idempotency key was used for another tool or other arguments: take a new one")
	case errors.Is(err, background.ErrConflict):
		p = refuse(CodeConflict, "it was changed in the meantime: read it again")
	case errors.Is(err, host.ErrDenied) && errors.As(err, &place):
		p = refuse(CodeDenied, "%v", place.Err)
	case errors.Is(err, host.ErrDenied):
		p = refuse(CodeDenied, "%v", err)
	case errors.Is(err, plugins.ErrNoTool):
		p = refuse(CodeNotFound, "%v", err)
	case errors.Is(err, background.ErrClosed), errors.Is(err, host.ErrClosed):
		p = refuse(CodeClosing, "the server is shutting down")
	default:
		p = refuse(CodeInternal, "the server's log says what went wrong")
	}
	return p
}

// loginProblem is the problem of a refused login.
func loginProblem(e *identity.Error) *Problem {
	p := refuse(loginCodes[e.Reason], "%s", e.Detail)
	if e.Reason == identity.Ambiguous {
		p = invalid("Authorization", "%s", e.Detail)
	}
	p.challenge = e.Challenge
	return p
}

var loginCodes = map[identity.Reason]Code{
	identity.Unauthorized:      CodeUnauthorized,
	identity.Ambiguous:         CodeInvalid,
	identity.InsufficientScope: CodeScope,
	identity.Unavailable:       CodeIssuer,
	identity.Closed:            CodeClosing,
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.challenge != "" {
		h.Set("WWW-Authenticate", p.challenge)
	}
	switch p.Code {
	case CodeClosing:
		p.retry = 1
	case CodeIssuer:
		p.retry = int(identity.RetryAfter.Seconds())
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	w.WriteHeader(p.Status)
	_ = writeJSON(w, p) // what goes wrong here is a client that is gone
}

// fail answers a request with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		switch {
		case a.ended():
			refuse(CodeClosing, "the server is shutting down").write(w)
		case identity.FromContext(r.Context()).Expired():
			problem(a.auth.Expired()).write(w)
		}
		return // or the client is gone
	}
	p := problem(err)
	if p.Code == CodeInternal && a.draining.Load() {
		p = refuse(CodeClosing, "the server is shutting down")
	}
	if p.Code == CodeInternal {
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	p.write(w)
}

// writeJSON writes v and a line end, without the escapes for HTML.
func writeJSON(w http.ResponseWriter, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
