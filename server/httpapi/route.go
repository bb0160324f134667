package httpapi

import (
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/server/identity"
)

// A Route is one endpoint. All that is to be known of it for its documentation
// is here, and the types are those the handler really takes and gives. The
// OpenAPI document is made of it, see [Document].
type Route struct {
	Method   string
	Path     string  // a pattern of net/http
	Name     string  // of the operation, as clients are generated with it; empty: made of the method and the path
	Summary  string  // one sentence
	Doc      string  // what there is to say beside it
	InPath   []Param // in the order of the path
	Query    []Param
	Headers  []Param      // beside SessionHeader
	Request  reflect.Type // of the JSON body; nil for none
	Response reflect.Type // of the JSON answer; nil for none, or another media type
	Media    []string     // media types of the answer, if it is not JSON
	Events   []EventType  // of the answer, if it is a stream of events
	Status   int          // of an answer that is no error
	Also     []Answer     // other answers that are no error
	Sends    []Param      // headers of all answers that are no error
	Refuses  []Code       // beside those that Codes adds
	Begins   bool         // it begins work, and is refused when the server shuts down
	Operator bool         // it tells of all sessions, and is refused to users
	Open     bool         // it needs no token
	Common   bool         // it is the same for all sessions

	handle func(a *API, r *request) error
}

// An Answer is an answer that is no error and not the usual one.
type Answer struct {
	Status int
	When   string
	Sends  []Param // headers, beside those of the route
}

// An EventType is an event of a stream.
type EventType struct {
	Name string       // empty: the value of "kind" in its data
	Data reflect.Type // of its data, which is JSON
}

// Codes are those of all the problems a request to the route can be answered
// with.
func (r *Route) Codes() []Code {
	codes := append([]Code{CodeInvalid, CodeInternal, CodeMediaType}, r.Refuses...)
	if r.Path != pathHealth && r.Path != pathReady && !slices.Contains(codes, CodeLimit) { // these are answered in any case
		codes = append(codes, CodeLimit)
	}
	if !isMetadata(r.Path) { // which is for pages of all origins
		codes = append(codes, CodeForbidden)
	}
	if !r.Open { // the server may end while it looks at the token, too
		codes = append(codes, CodeUnauthorized, CodeScope, CodeIssuer, CodeClosing)
	}
	if r.Request != nil {
		codes = append(codes, CodeTimeout, CodeTooLarge)
	}
	return codes
}

// pathNames finds the parameters of a path.
var pathNames = regexp.MustCompile(`{(\w+)}`)

// inPath are the parameters of a path.
func inPath(path string) (params []Param) {
	for _, name := range pathNames.FindAllStringSubmatch(path, -1) {
		params = append(params, pathParams[name[1]])
	}
	return params
}

func (r *Route) parameters() string {
	names := make([]string, len(r.Query))
	for i, p := range r.Query {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// none is the body of a request or an answer that has none.
type none struct{}

// endpoint makes a route of JSON in and JSON out.
func endpoint[In, Out any](method, path, summary string, handle func(a *API, r *request, in In) (Out, error)) Route {
	route := Route{Method: method, Path: path, Summary: summary, InPath: inPath(path), Status: http.StatusOK}
	if t := reflect.TypeFor[In](); t != reflect.TypeFor[none]() {
		route.Request = t
	}
	if t := reflect.TypeFor[Out](); t != reflect.TypeFor[none]() {
		route.Response = t
	} else {
		route.Status = http.StatusNoContent
	}
	takesBody, answers := route.Request != nil, route.Response != nil
	route.handle = func(a *API, r *request) error {
		var in In
		if takesBody {
			if err := r.body(&in); err != nil {
				return err
			}
		}
		out, err := handle(a, r, in)
		if err != nil {
			return err
		}
		status := r.route.Status
		if r.status != 0 {
			status = r.status
		}
		if !answers {
			r.w.WriteHeader(status)
			return nil
		}
		r.w.Header().Set("Content-Type", jsonMedia)
		r.w.WriteHeader(status)
		_ = writeJSON(r.w, out) // what goes wrong here is a client that is gone
		return nil
	}
	return route
}

// stream makes a route whose handler writes the answer itself.
func stream(path, summary string, media []string, handle func(a *API, r *request) error) Route {
	return Route{Method: http.MethodGet, Path: path, Summary: summary, InPath: inPath(path), Media: media, Status: http.StatusOK, handle: handle}
}

func (r Route) named(name string) Route { r.Name = name; return r }

func (r Route) doc(text string) Route { r.Doc = text; return r }

func (r Route) query(params ...Param) Route { r.Query = params; return r }

func (r Route) headers(params ...Param) Route { r.Headers = params; return r }

func (r Route) events(events ...EventType) Route { r.Events = events; return r }

func (r Route) sends(params ...Param) Route { r.Sends = params; return r }

func (r Route) also(status int, when string, sends ...Param) Route {
	r.Also = append(r.Also, Answer{Status: status, When: when, Sends: sends})
	return r
}

func (r Route) refuses(codes ...Code) Route { r.Refuses = codes; return r }

func (r Route) begins() Route { r.Begins = true; return r }

func (r Route) operator() Route { r.Operator = true; return r }

func (r Route) created() Route { r.Status = http.StatusCreated; return r }

func (r Route) open() Route { r.Open, r.Common = true, true; return r }

func (r Route) common() Route { r.Common = true; return r }

// newMux dispatches to the routes, and answers what is none of them.
func (a *API) newMux(routes []Route) *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, route := range routes {
		methods[route.Path] = append(methods[route.Path], route.Method)
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			if err := a.serve(w, r, &route); err != nil {
				a.fail(w, r, err)
			}
		})
	}
	for path, allowed := range methods {
		if slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			a.fail(w, r, refuse(CodeMethod, "%s takes %s", path, strings.Join(allowed, ", ")))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, refuse(CodeNotFound, "there is no %s here", r.URL.Path))
	})
	return mux
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, route *Route) error {
	if route.Begins && a.draining.Load() {
		return refuse(CodeClosing, "the server is shutting down and begins nothing new")
	}
	if route.Operator {
		if err := onlyOperator(identity.FromContext(r.Context()), "this is for the operator: it tells of all sessions, and you have your own"); err != nil {
			return err
		}
	}
	req, err := newRequest(w, r, route)
	if err != nil {
		return err
	}
	return route.handle(a, req)
}
