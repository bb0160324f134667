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
	// read reads what is not up to date, and returns the parts of the page in
	// order. If what it shows is gone, the error has the reason not_found.
	read(ctx context.Context, now time.Time) ([]part, error)
}

// A part is one element of a page, which is replaced when it changes. Each of its
// rows is replaced by itself, so that a moving progress bar does not send a whole
// table.
type part struct {
	id            string // of the element; id-rows is the element that has the rows
	before, after []byte
	rows          []row
}

type row struct {
	id   string
	html []byte
}

// html is the whole element.
func (p part) html() []byte {
	var b bytes.Buffer
	b.Write(p.before)
	for _, r := range p.rows {
		b.Write(r.html)
	}
	b.Write(p.after)
	return b.Bytes()
}

// templates are the templates of all pages.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"asset": asset, "size": human.Bytes, "span": span, "seconds": seconds, "int": number[int], "long": number[int64], "brief": brief,
	"claims": claims, "effects": effects,
}).ParseFS(files, "templates/*.html"))

// render executes a template.
func render(name string, data any) (template.HTML, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return "", err
	}
	return template.HTML(human.Visible(b.Bytes())), nil
}

// whole is a part without rows.
func whole(id string, data any) (part, error) {
	html, err := render(id, data)
	return part{id: id, before: []byte(html)}, err
}

// list is a part with rows: the templates are its id with -begin and -end.
func list(id string, data any, rows []row) (part, error) {
	before, err := render(id+"-begin", data)
	if err != nil {
		return part{}, err
	}
	after, err := render(id+"-end", data)
	return part{id: id, before: []byte(before), rows: rows, after: []byte(after)}, err
}

// newRow renders a row.
func newRow(template, id string, data any) (row, error) {
	html, err := render(template, data)
	return row{id, []byte(html)}, err
}

// newRows renders a row for each of all, from what view returns for it.
func newRows[T any](template string, all []T, view func(T) (id string, data any)) ([]row, error) {
	rows := make([]row, len(all))
	for i, v := range all {
		id, data := view(v)
		var err error
		if rows[i], err = newRow(template, id, data); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// collect gathers parts until one fails.
type collect struct {
	parts []part
	err   error
}

func (c *collect) add(p part, err error) {
	c.parts = append(c.parts, p)
	if c.err == nil {
		c.err = err
	}
}

// A frame is what is around the parts of a page.
type frame struct {
	Title, Menu string
	Version     string
	Build       string
	Live        bool // its parts can be streamed
	Now         *moment
	Address     string // of this page
	Body        template.HTML
}

// document answers with a page as it is now.
func (s *site) document(w http.ResponseWriter, r *http.Request, p page) error {
	parts, err := p.read(r.Context(), time.Now())
	if err != nil {
		return err
	}

	f := frame{Live: true}
	f.Title, f.Menu = p.name()
	for _, p := range parts {
		f.Body += template.HTML(p.html())
	}
	s.write(w, r, http.StatusOK, f)
	return nil
}

// write answers with a document.
func (s *site) write(w http.ResponseWriter, r *http.Request, status int, f frame) {
	now := time.Now()
	f.Version, f.Build, f.Now, f.Address = s.version, build, at(now, now), r.URL.RequestURI()
	html, err := render("layout", f)
	if err != nil {
		s.log.Error("page not rendered", "path", r.URL.Path, "error", err)
		http.Error(w, textWrong, http.StatusInternalServerError)
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(html)) // an error means that the client is gone
}
