package webui

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// maxSecretForm is the maximum size of the form of one secret, in bytes. Each byte of a value
// may take three bytes.
const maxSecretForm = 64 << 10

// linkStyle is the style of the page of a link. The page needs no other file, because
// users cannot read the files of the operators' page.
const linkStyle = template.CSS(`body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:3rem auto;padding:0 1rem;color-scheme:light dark}
input,button{font:inherit;padding:.4rem .6rem}input{width:100%;box-sizing:border-box;margin:.3rem 0 1rem}dt{font-weight:600}dd{margin:0 0 .6rem}`)

// linkPolicy prevents anything from running on the page of a link.
var linkPolicy = "default-src 'none'; style-src 'sha256-" + styleSum() + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func styleSum() string {
	sum := sha256.Sum256([]byte(linkStyle))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// secretForm serves the page where a user sets a secret that a call lacked.
type secretForm struct {
	*site
	links *server.SecretLinks
}

// NewSecretForm returns the page that links for secrets lead to, see [server.SecretLinks].
// It serves /secret/TOKEN without a login: anyone who has a link can set its secret once,
// but not read it. It is safe for concurrent use.
func NewSecretForm(service *server.Service, logger *slog.Logger) http.Handler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	f := secretForm{&site{Config: Config{Logger: logger}, service: service, mux: http.NewServeMux()}, service.SecretLinks()}
	f.mux.HandleFunc("GET /secret/{token}", f.get)
	f.mux.HandleFunc("POST /secret/{token}", f.post)

	return secured(f.mux, func(w http.ResponseWriter, _ *http.Request) {
		f.answer(w, linkPage{Error: "Requests from other pages are refused."}, http.StatusForbidden)
	})
}

// linkPage is the content of the page of a link.
type linkPage struct {
	server.SecretLink
	Style template.CSS
	Asker string // the session that asked, by the name that the user knows
	Until string // when the link expires
	Error string // problem with the form, or text in place of the form
	Form  bool
	Done  bool
}

// textVoid is shown for an invalid link.
const textVoid = "This link was used or has expired, or the secret has been set in another way. Let the agent call the tool again: if the secret is still missing, you get a new link."

func (f secretForm) get(w http.ResponseWriter, r *http.Request) {
	link, err := f.links.Link(r.PathValue("token"))
	if err != nil {
		f.answer(w, linkPage{Error: textVoid}, http.StatusNotFound)
		return
	}
	f.answer(w, linkPage{SecretLink: link, Form: true}, http.StatusOK)
}

func (f secretForm) post(w http.ResponseWriter, r *http.Request) {
	link, err := f.links.Link(r.PathValue("token"))
	if err == nil {
		if err = readForm(w, r, maxSecretForm); err == nil {
			err = f.links.Use(r.Context(), r.PathValue("token"), r.PostForm.Get("value"))
		}
	}

	wrong, refused := errors.AsType[*wire.Problem](err)
	reason := server.ReasonOf(err)
	switch {
	case err == nil:
		f.Logger.Info("secret of a user set by a link", "secret", link.Name, "user", link.User, "session", link.Session)
		f.answer(w, linkPage{SecretLink: link, Done: true}, http.StatusOK)
	case errors.Is(err, server.ErrLink):
		f.answer(w, linkPage{Error: textVoid}, http.StatusNotFound)
	case refused:
		f.answer(w, linkPage{SecretLink: link, Form: true, Error: wrong.Detail + "."}, wrong.Status)
	case statuses[reason.Code] != 0:
		f.answer(w, linkPage{SecretLink: link, Form: true, Error: "Not stored: " + reason.Text + "."}, statuses[reason.Code])
	default:
		f.Logger.Error("a secret was not set by a link", "secret", link.Name, "user", link.User, "error", err)
		f.answer(w, linkPage{SecretLink: link, Form: true, Error: textWrong + "."}, http.StatusInternalServerError)
	}
}

// answer sends the page.
func (f secretForm) answer(w http.ResponseWriter, p linkPage, status int) {
	p.Style, p.Until = linkStyle, p.Expires.UTC().Format(time.RFC1123)
	p.Asker = p.Session
	if p.User != "" {
		p.Asker = strings.TrimPrefix(p.Session, p.User+"/")
	}
	html, err := render("secret-link", p)
	if err != nil {
		f.Logger.Error("page not rendered", "error", err)
		http.Error(w, textWrong, http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", linkPolicy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(html)) // fails only if the client is gone
}
