package webui

import (
	"errors"
	"mime"
	"net/http"

	"github.com/toolhost/toolhost/pkg/background"
)

// download says that an answer is a file to be kept, and not to be shown.
func download(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Security-Policy", filePolicy)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// output sends the raw output of a run that is kept by now.
func (s *site) output(w http.ResponseWriter, r *http.Request) error {
	run, err := s.record(r)
	if err != nil {
		return err
	}
	log, err := s.service.Runs().Log(r.Context(), run.Session, run.ID)
	if err != nil {
		return err
	}
	download(w, run.ID+"-"+background.OutputLog)
	if _, err := log.WriteTo(w); err != nil {
		panic(http.ErrAbortHandler) // the client is to see that it is not whole, or is gone
	}
	return nil
}

// artifact sends a file of an ended run.
func (s *site) artifact(w http.ResponseWriter, r *http.Request) error {
	run, err := s.record(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	file, err := s.service.Runs().Open(r.Context(), run.Session, run.ID, name)
	if errors.Is(err, background.ErrNotFound) {
		return &refusal{http.StatusNotFound, "The run has no such file. Ended runs have " + background.OutputLog + " and " + background.ResultJSON}
	}
	if err != nil {
		return err
	}
	defer file.Close()
	download(w, run.ID+"-"+name)
	http.ServeContent(w, r, "", run.FinishedAt, file)
	return nil
}
