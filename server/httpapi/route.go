package httpapi

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// route is one endpoint. openapi.json describes it for clients.
type route struct {
	method   string
	path     string // a pattern of net/http
	query    []param
	begins   bool // starts work: refused while the server drains
	operator bool // concerns all sessions: refused for users

	in, out reflect.Type // types of the JSON bodies, for tests; nil without a body or for other media types
	handle  func(r *request) error
}

func (r *route) parameters() string {
	names := make([]string, len(r.query))
	for i, p := range r.query {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// none is the type of a missing body.
type none struct{}

func typeOf[T any]() reflect.Type {
	if t := reflect.TypeFor[T](); t != reflect.TypeFor[none]() {
		return t
	}
	return nil
}

// endpoint returns a route with JSON request and response bodies.
func endpoint[In, Out any](method, path string, handle func(r *request, in In) (Out, error), query ...param) route {
	return answers(method, path, func(r *request, in In) (int, Out, error) {
		out, err := handle(r, in)
		return http.StatusOK, out, err
	}, query...)
}

// answers is like endpoint, for a handler that chooses the status.
func answers[In, Out any](method, path string, handle func(r *request, in In) (int, Out, error), query ...param) route {
	route := route{method: method, path: path, query: query, in: typeOf[In](), out: typeOf[Out]()}
	route.handle = func(r *request) error {
		var in In
		if route.in != nil {
			if err := r.body(&in); err != nil {
				return err
			}
		}

		status, out, err := handle(r, in)
		if err != nil {
			return err
		}

		if route.out == nil {
			r.w.WriteHeader(http.StatusNoContent)
			return nil
		}
		data, err := encode(out)
		if err != nil {
			return err
		}
		r.w.send(status, jsonMedia, data...)
		return nil
	}
	return route
}

// raw returns a route whose handler writes the response itself.
func raw(path string, handle func(r *request) error, query ...param) route {
	return route{method: http.MethodGet, path: path, handle: handle, query: query}
}

func (r route) beginning() route { r.begins = true; return r }

func (r route) forOperator() route { r.operator = true; return r }

// newMux returns a mux that dispatches to the routes and refuses other methods and paths.
func (a *API) newMux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, route := range routes {
		methods[route.path] = append(methods[route.path], route.method)
		mux.HandleFunc(route.method+" "+route.path, func(w http.ResponseWriter, r *http.Request) {
			if err := a.serve(w.(*response), r, &route); err != nil {
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
			a.fail(w, r, refuse(wire.CodeMethod, "%s supports %s", path, strings.Join(allowed, ", ")))
		})
	}
	paths := slices.Sorted(maps.Keys(methods))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.fail(w, r, notFound(r, paths)) })
	return mux
}

func (a *API) serve(w *response, r *http.Request, route *route) error {
	if route.begins && a.draining.Load() {
		return refuse(wire.CodeClosing, "the server is shutting down and accepts no new work: retry later")
	}
	if route.operator {
		if err := onlyOperator(identity.FromContext(r.Context()), "this is about all sessions, and only for the operator"); err != nil {
			return err
		}
	}

	req, err := a.newRequest(w, r, route)
	if err != nil {
		return err
	}
	return route.handle(req)
}

// notFound returns the error for an unknown path, and suggests a similar path.
func notFound(r *http.Request, paths []string) error {
	asked := r.URL.Path
	near := nearestPath(asked, paths)
	if near == "" && slices.Contains(paths, "/v1"+asked) {
		near = "/v1" + asked
	}

	switch {
	case near != "" && near != asked:
		return refuse(wire.CodeNotFound, "no such path: %s, did you mean %s?", asked, near)
	case slices.Contains(paths, "/v1/tools") && strings.HasPrefix(asked, "/v1/tools/"):
		return refuse(wire.CodeNotFound, "no such path: %s: /v1/tools lists the tools, and POST /v1/calls calls one", asked)
	}
	return refuse(wire.CodeNotFound, "no such path: %s", asked)
}

// nearestPath returns the path of a route that a misspelled one probably means; empty if
// no path is close.
func nearestPath(path string, routes []string) string {
	asked := strings.Split(path, "/")
	var near []string
	for _, route := range routes {
		parts := strings.Split(route, "/")
		fits := true
		for n := range min(len(parts), len(asked)) {
			switch {
			case strings.HasPrefix(parts[n], "{") && asked[n] != "": // any name fits
				parts[n] = asked[n]
			case parts[n] != asked[n] && abi.Nearest(asked[n], parts[n:n+1]) == "":
				fits = false
			}
		}
		if fits {
			near = append(near, strings.Join(parts, "/"))
		}
	}
	return abi.Nearest(path, near)
}
