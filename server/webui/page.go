package webui

import (
	"bytes"
	"context"
	"html/template"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server/wire"
)

// A page shows one side of the service: once as a document, or repeatedly to a
// stream. It is used by one goroutine.
type page interface {
	// name returns the title of the page, and the menu entry it belongs to.
	name() (title, menu string)
	// changed notes an event, and reports whether the page shows something else now.
	changed(e wire.Event) bool
	// read reads what is not up to date, and returns the sections of the page in
	// order. If what it shows is gone, the error has the reason not_found.
	read(ctx context.Context) ([]section, error)
}

// A section is one element of a page, not rendered yet.
type section struct {
	id   string // of the element, and of its template
	data any
}

// A part is a rendered section.
type part struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// templates are the templates of all pages.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"asset": asset, "size": human.Bytes, "span": span, "seconds": seconds, "int": number[int], "long": number[int64], "brief": brief,
	"moment": newMoment, "state": stateOf, "bar": newBar, "took": took, "claims": claims, "effects": effects,
}).ParseFS(files, "templates/*.html"))

// render executes a template.
func render(name string, data any) (string, error) {
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, name, data)
	return string(human.Visible(b.Bytes())), err
}

// parts reads a page, and renders it.
func parts(ctx context.Context, p page) ([]part, error) {
	sections, err := p.read(ctx)
	if err != nil {
		return nil, err
	}

	parts := make([]part, len(sections))
	for i, s := range sections {
		html, err := render(s.id, s.data)
		if err != nil {
			return nil, err
		}
		parts[i] = part{s.id, html}
	}
	return parts, nil
}

// A frame is what is around the sections of a page.
type frame struct {
	Title, Menu string
	Version     string
	Build       string
	Live        bool // its changes can be streamed
	Now         *moment
	Address     string // of this page
	Body        template.HTML
	Error       string // in place of the body
}

// document answers with a page as it is now.
func (s *site) document(w http.ResponseWriter, r *http.Request, p page) error {
	parts, err := parts(r.Context(), p)
	if err != nil {
		return err
	}

	f := frame{Live: true}
	f.Title, f.Menu = p.name()
	for _, p := range parts {
		f.Body += template.HTML(p.HTML)
	}
	s.write(w, r, http.StatusOK, f)
	return nil
}

// write answers with a document.
func (s *site) write(w http.ResponseWriter, r *http.Request, status int, f frame) {
	f.Version, f.Build, f.Now, f.Address = s.Version, build, newMoment(time.Now()), r.URL.RequestURI()
	html, err := render("layout", f)
	if err != nil {
		s.Logger.Error("page not rendered", "path", r.URL.Path, "error", err)
		http.Error(w, textWrong, http.StatusInternalServerError)
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(html)) // an error means that the client is gone
}
