package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	documentation = "https://github.com/toolhost/toolhost/blob/main/docs/http.md#" // where each code is described
	maxDetail     = 4 << 10                                                        // bytes of a detail, which may quote the request

	textInternal = "internal error: the log of the server has the details"
	textClosing  = "the server is shutting down"
)

// statuses maps each code to its HTTP status and title.
var statuses = map[wire.Code]struct {
	status int
	title  string
}{
	wire.CodeInvalid:      {http.StatusBadRequest, "The request is not valid"},
	wire.CodeUnauthorized: {http.StatusUnauthorized, "A token is required"},
	wire.CodeForbidden:    {http.StatusForbidden, "The request is refused"},
	wire.CodeScope:        {http.StatusForbidden, "The token does not have the scope"},
	wire.CodeDenied:       {http.StatusForbidden, "The call is not allowed"},
	wire.CodeNotFound:     {http.StatusNotFound, "Not found"},
	wire.CodeMethod:       {http.StatusMethodNotAllowed, "The method is not allowed"},
	wire.CodeTimeout:      {http.StatusRequestTimeout, "The request took too long to arrive"},
	wire.CodeConflict:     {http.StatusConflict, "The request is in conflict with the current state"},
	wire.CodeTooLarge:     {http.StatusRequestEntityTooLarge, "The request is too large"},
	wire.CodeMediaType:    {http.StatusUnsupportedMediaType, "The request is not JSON"},
	wire.CodeRange:        {http.StatusRequestedRangeNotSatisfiable, "The range is beyond the end"},
	wire.CodeUnsupported:  {http.StatusUnprocessableEntity, "The tool cannot do that"},
	wire.CodeLimit:        {http.StatusTooManyRequests, "A limit is reached"},
	wire.CodeInternal:     {http.StatusInternalServerError, "Internal error"},
	wire.CodeUnavailable:  {http.StatusServiceUnavailable, "Nothing can be stored now"},
	wire.CodeClosing:      {http.StatusServiceUnavailable, "The server is shutting down"},
	wire.CodeIssuer:       {http.StatusServiceUnavailable, "Tokens cannot be checked now"},
}

// problem is an error response.
type problem struct {
	wire.Problem
	challenge string // for WWW-Authenticate
	retry     int    // seconds, for Retry-After; 0 sends no header
}

// Unwrap lets handlers of other protocols get the status when reading a body fails.
func (p *problem) Unwrap() error { return &p.Problem }

// refuse returns the error response for a code.
func refuse(code wire.Code, format string, args ...any) *problem {
	s, ok := statuses[code]
	if !ok { // a code of call results, which is never a code of responses
		return refuse(wire.CodeInternal, textInternal)
	}

	p := &problem{Problem: wire.Problem{
		Type: documentation + string(code), Title: s.title, Status: s.status,
		Code: code, Detail: clip(fmt.Sprintf(format, args...)),
	}}
	switch code {
	case wire.CodeClosing:
		p.retry = 1
	case wire.CodeIssuer:
		p.retry = int(identity.RetryAfter.Seconds())
	}
	return p
}

// invalid returns the error response for an invalid field, parameter or header.
func invalid(field, format string, args ...any) *problem {
	p := refuse(wire.CodeInvalid, "%s: %s", field, fmt.Sprintf(format, args...))
	p.Field = field
	return p
}

// clip shortens a text that may quote the request.
func clip(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail], "") + "…"
}

// problemOf maps any error to an error response without internals of the server.
func problemOf(err error) *problem {
	var p *problem
	var login *identity.Error
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &large):
		return refuse(wire.CodeTooLarge, "the body has more than the %d bytes allowed", large.Limit)
	case errors.As(err, &login):
		p = refuse(login.Code, "%s", login.Detail)
		if login.Code == wire.CodeInvalid {
			p = invalid("Authorization", "%s", login.Detail)
		}
		p.challenge = login.Challenge
		return p
	}

	r := server.ReasonOf(err)
	switch {
	case r.Code == wire.CodeInternal:
		return refuse(r.Code, textInternal)
	case r.Field != "":
		p = invalid(r.Field, "%s", r.Text)
	default:
		p = refuse(r.Code, "%s", r.Text)
	}
	p.Max, p.Active, p.retry = r.Max, r.Active, int(r.Retry.Seconds())
	return p
}

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.challenge != "" {
		h.Set("WWW-Authenticate", p.challenge)
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	w.WriteHeader(p.Status)

	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p.Problem) // fails only if the client has disconnected
}

// fail responds to a request with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		switch {
		case a.ending.Err() != nil:
			refuse(wire.CodeClosing, textClosing).write(w)
		case identity.FromContext(r.Context()).Expired():
			problemOf(a.auth.Expired()).write(w)
		}
		return // otherwise the client has disconnected
	}

	p := problemOf(err)
	if p.Code == wire.CodeInternal && a.draining.Load() {
		p = refuse(wire.CodeClosing, textClosing)
	}
	if p.Code == wire.CodeInternal {
		a.log.Error("request failed", "method", r.Method, "path", loggedPath(r), "error", err)
	}
	p.write(w)
}
