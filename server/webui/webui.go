// Package webui serves the operator's page of a [server.Service]. It shows runs with their
// progress and output, schedules, plugins with their grants, and the resources in use.
//
// It shows the runs of every session, so the handler that it is mounted in must admit only
// operators. GET requests change nothing; only the page's own forms make changes.
//
// Everything is rendered on the server, and works without JavaScript. The script requests
// the page again each second and replaces what differs: there is no second renderer.
//
// Text from tools may be hostile. It is escaped in HTML, invisible characters (control
// characters, overrides of the writing direction) are made visible, its size is limited,
// and the page's policy allows no script but its own.
package webui

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// Config configures the page. Its zero value is ready for use.
type Config struct {
	Version string // version of the program, shown at the foot of each page
	// Settings returns the configuration in force, without secrets. It is called each time
	// the page shows the configuration. If it is nil, the page shows none.
	Settings func() []Setting
	// Lacking returns lines of configuration that give a plugin the grants it lacks, and a
	// phrase that says where these lines belong. If it is nil, the page shows none.
	Lacking func(plugin string) (addTo, lines string)
	// Reload reloads the configuration of the program and the plugins. Its error is shown
	// to the operator. Nil reloads the plugins only.
	Reload func(ctx context.Context) (wire.Reload, error)
	// Approvals checks the token for decisions on approvals on the page. Nil disables
	// such decisions.
	Approvals *identity.ApprovalToken
	// Logger gets messages for operators. Nil discards them.
	Logger *slog.Logger
}

// A Setting is one key of the configuration in force.
type Setting struct {
	Key, Value string
	Source     string // where the value comes from: a file, a variable, a flag, or the default
}

// The Content-Security-Policy of pages and of files.
const (
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	filePolicy = "default-src 'none'; sandbox"
)

// site serves the page.
type site struct {
	Config
	service  *server.Service
	mux      *http.ServeMux
	searches chan struct{} // holds an element while a search reads logs
}

// New returns the handler of the page. It serves / and the paths below /ui/, and is safe
// for concurrent use. It does not own the service. The server that it is mounted in must
// disconnect clients that read responses too slowly.
func New(service *server.Service, cfg Config) http.Handler {
	s := &site{Config: cfg, service: service, mux: http.NewServeMux(), searches: make(chan struct{}, 1)}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if s.Settings == nil {
		s.Settings = func() []Setting { return nil }
	}

	s.register()
	return secured(s.mux, func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, refuse(http.StatusForbidden, "Requests from other pages are refused"))
	})
}

// register registers all pages, files and forms.
func (s *site) register() {
	s.show("GET /{$}", s.overview)
	s.show("GET /ui/calls", s.calls)
	s.show("GET /ui/audit", s.audit)
	s.show("GET /ui/settings", s.settings)
	s.show("GET /ui/plugins", s.plugins)
	s.handle("POST /ui/plugins", s.reload)

	s.show("GET /ui/runs", s.runs)
	s.show("GET /ui/runs/{run}", s.run)
	s.show("GET /ui/logs", s.logs)
	s.handleRun("GET /ui/runs/{run}/output", s.output)
	s.handleRun("GET /ui/runs/{run}/artifacts/{name}", s.artifact)
	s.handleRun("POST /ui/runs/{run}/answers", s.answerQuestion)
	s.postRun("POST /ui/runs/{run}/stop", maxForm, s.stop)
	s.postRun("POST /ui/runs/{run}/rerun", maxForm, s.rerun)
	s.postRun("POST /ui/runs/{run}/messages", maxCallForm, s.send)
	s.postRun("POST /ui/runs/{run}/remove", maxForm, s.remove)
	s.postMany("POST /ui/stop", s.stopIfActive)
	s.postMany("POST /ui/remove", s.removeIfEnded)

	s.show("GET /ui/approvals", s.approvals)
	s.postDecision("POST /ui/approvals/{run}", s.decide)
	s.postDecision("POST /ui/kept_approvals/{tool}/revoke", s.revoke)

	s.show("GET /ui/schedules", s.schedules)
	s.postSchedule("POST /ui/schedules/{schedule}/disable", "disabled", s.changing(server.Schedules.Disable))
	s.postSchedule("POST /ui/schedules/{schedule}/enable", "enabled", s.changing(server.Schedules.Enable))
	s.postSchedule("POST /ui/schedules/{schedule}/fire", "fired", s.fire)
	s.postSchedule("POST /ui/schedules/{schedule}/remove", "removed", s.changing(server.Schedules.Remove))

	s.show("GET /ui/tools", s.tools)
	s.show("GET /ui/tools/{tool}", s.tool)
	s.handle("POST /ui/tools/{tool}", s.use)

	s.show("GET /ui/stores", s.stores)
	s.show("GET /ui/stores/{plugin}", s.store)
	s.show("GET /ui/stores/{plugin}/{key}", s.value)
	s.post("POST /ui/stores/{plugin}/remove", maxForm, s.clearStore)
	s.post("POST /ui/stores/{plugin}/values/remove", maxForm, s.removeValue) // the key is in the form, because an address with it could mean something else

	s.handle("GET /ui/secrets", s.secrets)
	s.post("POST /ui/secrets/{secret}", maxSecretForm, s.setSecret)
	s.post("POST /ui/secrets/{secret}/remove", maxSecretForm, s.removeSecret)

	s.handle("GET /ui/static/{build}/{name}", static)
	s.handle("/", func(http.ResponseWriter, *http.Request) error {
		return refuse(http.StatusNotFound, "Page not found")
	})
}

// secured sets the security headers of all responses, in place of those that the
// surrounding handler has set. Requests from pages of other origins get the answer of
// deny.
func secured(next http.Handler, deny http.HandlerFunc) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(deny)
	guarded := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// Not no-referrer: browsers would send forms with the origin null.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		guarded.ServeHTTP(w, r)
	})
}

// handle registers a handler. Its error is shown as a page.
func (s *site) handle(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := handle(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// show registers a page.
func (s *site) show(pattern string, read func(*http.Request) (page, error)) {
	s.handle(pattern, func(w http.ResponseWriter, r *http.Request) error {
		p, err := read(r)
		if err != nil {
			return err
		}
		return s.document(w, r, p)
	})
}

// post registers a posted form. Its parameter most limits the size, in bytes. The
// function act does what the form asks, and returns the address of the next page.
func (s *site) post(pattern string, most int64, act func(*http.Request) (to string, err error)) {
	s.handle(pattern, func(w http.ResponseWriter, r *http.Request) error {
		if err := readForm(w, r, most); err != nil {
			return err
		}
		to, err := act(r)
		if err != nil {
			return err
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return nil
	})
}

// textWrong is shown for errors whose details are only logged.
const textWrong = "Something went wrong. The server's log has the details"

// refuse returns the error that tells the sender why a request is refused.
func refuse(status int, text string) *wire.Problem {
	return &wire.Problem{Status: status, Title: http.StatusText(status), Detail: text}
}

var (
	errNoRun      = refuse(http.StatusNotFound, "There is no such run. Its record may have been removed")
	errNoSchedule = refuse(http.StatusNotFound, "There is no such schedule")
)

func notFound(err error) bool { return err != nil && server.ReasonOf(err).Code == wire.CodeNotFound }

// statuses maps the reasons that the sender can act on to HTTP statuses.
var statuses = map[wire.Code]int{
	wire.CodeInvalid: http.StatusUnprocessableEntity, wire.CodeUnsupported: http.StatusUnprocessableEntity, wire.CodeDenied: http.StatusForbidden,
	wire.CodeNotFound: http.StatusNotFound, wire.CodeConflict: http.StatusConflict, wire.CodeLimit: http.StatusTooManyRequests,
	wire.CodeUnavailable: http.StatusServiceUnavailable,
}

// explain returns why a request is refused. Unknown errors are only logged.
func (s *site) explain(r *http.Request, err error) *wire.Problem {
	reason := server.ReasonOf(err)
	p, ok := errors.AsType[*wire.Problem](err)
	switch {
	case ok:
		return p
	case reason.Code == wire.CodeClosing, r.Context().Err() != nil: // or the client has disconnected
		return refuse(http.StatusServiceUnavailable, "The server is shutting down")
	case statuses[reason.Code] != 0:
		text := reason.Text
		if reason.Field != "" && reason.Field != "args" && reason.Field != "answers" { // their texts name the field
			text = reason.Field + ": " + text
		}
		return refuse(statuses[reason.Code], cut(text, maxProblem))
	}
	s.Logger.Error("page not shown", "method", r.Method, "path", r.URL.Path, "error", err)
	return refuse(http.StatusInternalServerError, textWrong)
}

// fail responds to a request with an error.
func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := s.explain(r, err)
	s.write(w, r, p.Status, frame{Title: p.Title, Error: p.Detail})
}

// address returns the address of a page, with a query of the values that are not empty.
func address(path string, values map[string]string) string {
	q := url.Values{}
	for name, value := range values {
		if value != "" {
			q.Set(name, value)
		}
	}
	return strings.TrimSuffix(path+"?"+q.Encode(), "?")
}

// sessionParam returns the session that a query names, or "".
func sessionParam(r *http.Request) (string, error) {
	session := r.URL.Query().Get("session")
	if len(session) > maxSession {
		return "", refuse(http.StatusBadRequest, "The parameter session is too long")
	}
	return session, nil
}
