package webui

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/internal/human"
)

// A page shows one aspect of the service in its current state.
type page struct {
	title    string
	menu     string // the menu entry it belongs to
	sections []section
	still    bool // the page is not kept up to date: its content takes long to find, or does not change
}

// A section is one element of a page before rendering.
type section struct {
	id   string // id of the element, and of its template
	data any
}

// templates are the templates of all pages.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"asset": asset, "size": human.Bytes, "wide": func(n int) int64 { return int64(n) }, "seconds": seconds, "int": number[int], "long": number[int64], "brief": brief,
	"moment": newMoment, "state": stateOf, "bar": newBar, "took": took, "claims": claims, "effects": effectsOf,
	"duration": duration, "exactly": durationText, "named": namedTool, "heading": headingOf, "runID": runID,
}).ParseFS(files, "templates/*.html"))

// render executes a template.
func render(name string, data any) (string, error) {
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, name, data)
	return string(human.Visible(b.Bytes())), err
}

// A frame is everything around the sections of a page.
type frame struct {
	Title, Menu string
	Version     string
	Build       string
	Live        bool // the script keeps it up to date
	Now         *moment
	Address     string // address of this page
	Body        template.HTML
	Error       string // replaces the body
}

// frame renders a page.
func (p page) frame() (frame, error) {
	f := frame{Title: p.title, Menu: p.menu}
	for _, section := range p.sections {
		html, err := render(section.id, section.data)
		if err != nil {
			return frame{}, err
		}
		f.Body += template.HTML(html)
	}
	return f, nil
}

// document sends a page, or says that the client's copy is current: the script requests a
// page again and again.
func (s *site) document(w http.ResponseWriter, r *http.Request, p page) error {
	f, err := p.frame()
	if err != nil {
		return err
	}

	f.Live = !p.still
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(build+string(f.Body))))
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	s.write(w, r, http.StatusOK, f)
	return nil
}

// answer sends a page in response to a posted form. Its address belongs to another page,
// so the script does not update it.
func (s *site) answer(w http.ResponseWriter, r *http.Request, status int, p page) error {
	f, err := p.frame()
	if err == nil {
		s.write(w, r, status, f)
	}
	return err
}

// write sends a document.
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
	_, _ = w.Write([]byte(html)) // fails only if the client is gone
}
