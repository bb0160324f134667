package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/jsontext"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// The headers of this API.
const (
	// SessionHeader names the session a request is for: 1 to 128 letters,
	// digits and . _ : @ -. Without it the session is [wire.DefaultSession]. A user's
	// is apart from all of others, whatever its name, see [identity.Caller].
	SessionHeader = "Toolhost-Session"
	// KeyHeader is the idempotency key of a spawn: up to 128 characters. Calls and
	// schedules with one are refused.
	KeyHeader = "Idempotency-Key"
)

// maxKey bounds an idempotency key, in characters.
const maxKey = 128

// maxBody bounds the body of a request: the largest arguments and what is
// around them.
const maxBody = server.MaxArgs + 64<<10

// request is a request as handlers see it, and the answer to it.
type request struct {
	*http.Request
	route   *Route
	caller  identity.Caller
	session string // the key by which the service knows it
	status  int    // of the answer, if it is not the route's
	w       *response
}

// newRequest checks what is the same for all requests: the session and the
// names of the parameters.
func newRequest(w http.ResponseWriter, r *http.Request, route *Route) (*request, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // what cannot be read would be left out
		return nil, refuse(CodeInvalid, "the query of the URL cannot be read: %v", err)
	}
	for name, values := range query {
		i := slices.IndexFunc(route.Query, func(p Param) bool { return p.Name == name })
		switch {
		case i < 0 && len(route.Query) == 0:
			return nil, invalid(shorten(name), "unknown parameter, there are none here")
		case i < 0:
			return nil, invalid(shorten(name), "unknown parameter, expected one of %s", route.parameters())
		}
		if err := route.Query[i].check(values); err != nil {
			return nil, err
		}
	}
	caller := identity.FromContext(r.Context())
	return &request{Request: r, route: route, caller: caller, session: caller.Session, w: w.(*response)}, nil
}

// key is the idempotency key of a request; empty for none.
func (r *request) key() (string, error) {
	switch given := r.Header.Values(KeyHeader); {
	case len(given) == 0:
		return "", nil
	case len(given) > 1:
		return "", invalid(KeyHeader, "given more than once")
	case utf8.RuneCountInString(given[0]) > maxKey:
		return "", invalid(KeyHeader, "longer than %d characters", maxKey)
	default:
		return given[0], nil
	}
}

// noKey refuses an idempotency key where it would not keep a request from being
// done twice: its client relies on it.
func (r *request) noKey(instead string) error {
	if len(r.Header.Values(KeyHeader)) > 0 {
		return invalid(KeyHeader, "not taken here, %s", instead)
	}
	return nil
}

// shorten cuts what a client called a parameter or a field.
func shorten(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "") + "…"
	}
	return name
}

// run is the id of a run in the path.
func (r *request) run() (string, error) { return r.id("run", runForm) }

// schedule is the id of a schedule in the path.
func (r *request) schedule() (string, error) { return r.id("schedule", scheduleForm) }

func (r *request) id(name string, form *regexp.Regexp) (string, error) {
	id := r.PathValue(name)
	if !form.MatchString(id) {
		return "", invalid(name, "expected an id: %s and 26 characters", form.String()[1:4])
	}
	return id, nil
}

// body reads the JSON object of a request into v. An empty body is an empty
// object.
func (r *request) body(v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, maxBody))
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return refuse(CodeTimeout, "the body did not arrive within %s", bodyTimeout)
		}
		var large *http.MaxBytesError
		var busy busyError
		if errors.As(err, &large) || errors.As(err, &busy) {
			return err
		}
		return refuse(CodeInvalid, "the body ended too early")
	}
	setReadDeadline(r.w, 0)
	if err := checkMediaType(r.Header.Get("Content-Type"), len(data) == 0); err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	return decode(data, v)
}

// checkMediaType lets nothing in but JSON: a form of a web page cannot send it
// without the browser asking this server first.
func checkMediaType(header string, empty bool) error {
	if header == "" && empty {
		return nil
	}
	media, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	if err != nil || media != jsonMedia || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(CodeMediaType, "send the body as Content-Type: %s", jsonMedia)
	}
	return nil
}

// decode reads one JSON object strictly and says which field is wrong.
func decode(data []byte, v any) error {
	if json.Valid(data) {
		if err := checkNames(data, reflect.TypeOf(v).Elem(), ""); err != nil {
			return err
		}
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(v)
	if err == nil {
		if _, err := dec.Token(); err != io.EOF {
			return refuse(CodeInvalid, "the body has more than one JSON value")
		}
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var field *background.FieldError
	switch {
	case errors.As(err, &field):
		return err
	case errors.As(err, &wrong) && wrong.Field != "":
		return invalid(wrong.Field, "expected %s, found %s", typeName(wrong.Type), wrong.Value)
	case errors.As(err, &wrong):
		return refuse(CodeInvalid, "the body is a JSON %s, and an object is expected", wrong.Value)
	}
	return refuse(CodeInvalid, "the body is not JSON: %v", err)
}

// checkNames refuses members of valid JSON that a type does not have, in this very
// case, and those that are there twice: encoding/json would take both. What the
// type leaves as it is, such as the arguments of a tool, it does not look into.
func checkNames(data []byte, t reflect.Type, path string) error {
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return nil
	}
	fields, seen := map[string]reflect.Type{}, map[string]bool{}
	addFields(fields, t)
	for name, value := range jsontext.Members(data) {
		inner, known := fields[name]
		if t.Kind() == reflect.Map {
			inner, known = t.Elem(), true
		}
		at := path + shorten(name)
		switch {
		case !known:
			if near := nearest(name, slices.Sorted(maps.Keys(fields))); near != "" {
				return invalid(at, "unknown field, did you mean %q?", near)
			}
			return invalid(at, "unknown field")
		case seen[name]:
			return invalid(at, "given more than once")
		}
		seen[name] = true
		if err := checkNames(value, inner, at+"."); err != nil {
			return err
		}
	}
	return nil
}

// addFields adds the types of a body's fields, by name.
func addFields(fields map[string]reflect.Type, t reflect.Type) {
	if t.Kind() != reflect.Struct {
		return
	}
	for f := range t.Fields() {
		if f.Anonymous {
			addFields(fields, f.Type)
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
}

// nearest is the name that was meant; empty if there is none like it.
func nearest(name string, known []string) string {
	if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		return known[i]
	}
	return abi.Nearest(name, known)
}

// typeName is what JSON calls a Go type.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int64:
		return "a whole number"
	}
	return "a number"
}

// clip cuts a text of a problem.
func clip(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail], "") + "…"
}
