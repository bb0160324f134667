package httpapi

import (
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/server/wire"
)

func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// What there may be at once, and of one client.
const (
	MaxBodies  = maxBodies
	MaxAnswers = maxAnswers
)

// AnswerBytes returns how many bytes of answers clients have not read yet.
func (a *API) AnswerBytes() int { return a.answers.Used() }

// ServeLimited is like Serve, but with at most that number of connections.
func (a *API) ServeLimited(l net.Listener, most int) error { return a.http.Serve(newConns(l, most)) }

// Statuses returns the HTTP status of each code.
func Statuses() map[wire.Code]int {
	out := map[wire.Code]int{}
	for code, s := range statuses {
		out[code] = s.status
	}
	return out
}

// A Route is an endpoint, with the document's description of it.
type Route struct {
	Method, Path      string
	Begins            bool
	Request, Response reflect.Type
	Query             []string

	Name  string // of the operation
	Open  bool   // the endpoint needs no login
	Codes []wire.Code
}

// Routes returns all endpoints. One that is not in the document has no name.
func Routes() (all []Route) {
	type answer struct {
		Ref         string `json:"$ref"`
		Description string
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Security    *[]any
			Responses   map[string]answer
		}
		Components struct{ Responses map[string]answer }
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		panic(err)
	}

	for _, r := range routes() {
		op := doc.Paths[r.path][strings.ToLower(r.method)]
		out := Route{
			Method: r.method, Path: r.path, Begins: r.begins, Request: r.in, Response: r.out,
			Name: op.OperationID, Open: op.Security != nil,
		}
		if r.in != nil && r.in.Field(0).Anonymous && r.in.Field(0).Type.Name() != "Spawn" || r.in == reflect.TypeFor[spawnBody]() {
			out.Request = r.in.Field(0).Type // what clients send
		}
		for _, p := range r.query {
			out.Query = append(out.Query, p.name)
		}
		for _, answer := range op.Responses {
			name := strings.TrimPrefix(answer.Ref, "#/components/responses/")
			for _, code := range codeNames.FindAllStringSubmatch(doc.Components.Responses[name].Description, -1) {
				out.Codes = append(out.Codes, wire.Code(code[1]))
			}
		}
		slices.SortFunc(out.Codes, func(a, b wire.Code) int { return cmp.Compare(statuses[a].status, statuses[b].status) }) // the issuer last: it breaks
		all = append(all, out)
	}
	return all
}

// codeNames finds the codes in the description of an answer.
var codeNames = regexp.MustCompile("`([a-z_]+)`:")

// OpenAnswers returns how many requests are being answered.
func (a *API) OpenAnswers() int { return int(a.active.Load()) }

// ServeCounted serves l until the API is shut down. It returns how many requests are answered and how many
// bytes of bodies are held.
func (a *API) ServeCounted(l net.Listener) (held func() (requests, bodies int)) {
	c := newConns(l, maxConns)
	go func() { _ = a.http.Serve(c) }()
	return func() (int, int) { return c.requests.Used(), a.bodies.Used() }
}
