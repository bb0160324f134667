package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/internal/strictjson"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// allSessions is the parameter with which the operator sees the runs and schedules of all
// sessions.
const allSessions = "all_sessions"

const (
	maxBody   = server.MaxArgs + 64<<10 // bytes of a body: the largest arguments, and room for the rest
	firstRead = 128 << 10               // bytes allocated before any of a body has arrived
	fullRead  = 16                      // most bytes allocated for each byte that has arrived
)

// request is a checked request with its response.
type request struct {
	*http.Request
	api     *API
	w       *response
	route   *route
	caller  identity.Caller
	session server.Session // session of the caller; with allSessions, all sessions
}

// newRequest checks the names in the path and the query parameters.
func (a *API) newRequest(w *response, r *http.Request, route *route) (*request, error) {
	for _, p := range inPath {
		if name := r.PathValue(p.name); name != "" && !p.valid(name) {
			return nil, invalid(p.name, "%s", p.expected)
		}
	}

	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // url.URL.Query would ignore invalid parts
		return nil, refuse(wire.CodeInvalid, "invalid query in the URL: %v", err)
	}
	for name, values := range query {
		i := slices.IndexFunc(route.query, func(p param) bool { return p.name == name })
		switch {
		case i < 0 && len(route.query) == 0:
			return nil, invalid(shorten(name), "unknown parameter: this endpoint has no parameters")
		case i < 0:
			return nil, invalid(shorten(name), "unknown parameter, expected one of %s", route.parameters())
		}
		if err := route.query[i].check(values); err != nil {
			return nil, err
		}
	}

	caller := identity.FromContext(r.Context())
	session := a.service.Session(caller.Session)
	if query.Get(allSessions) == "true" {
		if !caller.Operator() {
			return nil, refuse(wire.CodeForbidden, "%s is reserved for the operator", allSessions)
		}
		session = a.service.AllSessions()
	}
	return &request{Request: r, api: a, w: w, route: route, caller: caller, session: session}, nil
}

// key returns the idempotency key, or an empty string without one.
func (r *request) key() (string, error) {
	switch given := r.Header.Values(wire.KeyHeader); {
	case len(given) == 0:
		return "", nil
	case len(given) > 1:
		return "", invalid(wire.KeyHeader, "given more than once")
	case r.caller.Unnamed:
		return "", invalid(wire.KeyHeader, "requires the header %s: a key is valid in one session only", wire.SessionHeader)
	case given[0] == "":
		return "", invalid(wire.KeyHeader, "empty: give a key, or leave the header out")
	case utf8.RuneCountInString(given[0]) > server.MaxKey:
		return "", invalid(wire.KeyHeader, "longer than %d characters", server.MaxKey)
	default:
		return given[0], nil
	}
}

// noKey refuses an idempotency key on endpoints that do not support it, because the
// client relies on the key.
func (r *request) noKey(instead string) error {
	if len(r.Header.Values(wire.KeyHeader)) > 0 {
		return invalid(wire.KeyHeader, "not supported here: %s", instead)
	}
	return nil
}

// shorten shortens a name from a request.
func shorten(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "") + "…"
	}
	return name
}

// body decodes the JSON object in the body of a request into v. An empty body counts as
// an empty object.
func (r *request) body(v any) error {
	data, err := readBody(http.MaxBytesReader(r.w, r.Body, maxBody), r.ContentLength)
	var large *http.MaxBytesError
	var refused *problem
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(wire.CodeTimeout, "the body did not arrive within %s", bodyTimeout)
	case errors.As(err, &large), errors.As(err, &refused):
		return err
	case err != nil:
		return refuse(wire.CodeInvalid, "the body ended too early")
	}
	setReadDeadline(r.w, 0)

	if err := checkMediaType(r.Header.Get("Content-Type"), len(data) == 0); err != nil || len(data) == 0 {
		return err
	}
	return decode(data, v)
}

// readBody reads a body into two buffers: a small one, because its announced length may
// be wrong, and one of this length. A body of more than fullRead small ones needs three.
func readBody(body io.Reader, length int64) ([]byte, error) {
	size := int(min(max(length, 0), maxBody)) + 1 // one more, to detect the end
	data := make([]byte, 0, min(size, firstRead))

	for {
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = slices.Grow(data, max(min(size-len(data), (fullRead-1)*len(data)), len(data)/4+512))
		}
	}
}

// checkMediaType accepts JSON only: a form on a web page cannot send it without a CORS
// preflight.
func checkMediaType(header string, empty bool) error {
	if header == jsonMedia || header == "" && empty {
		return nil
	}

	media, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	if err != nil || media != jsonMedia || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(wire.CodeMediaType, "send the body as Content-Type: %s", jsonMedia)
	}
	return nil
}

// decode decodes one JSON object strictly, in one pass. Its error names the invalid
// field.
func decode(data []byte, v any) error {
	var wrong *strictjson.Error
	switch err := strictjson.Decode(data, v); {
	case errors.As(err, &wrong) && wrong.Path() != "":
		return invalid(clip(wrong.Path()), "%s", wrong.Message)
	case err != nil:
		return refuse(wire.CodeInvalid, "invalid body: %v", err)
	}
	return nil
}
