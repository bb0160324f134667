package webui

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

const (
	operator    = "operator"  // the requester of a stop, in its record
	formTimeout = time.Second // how long a form waits for its effect; then the page shows the progress
	maxForm     = 8 << 10     // bytes of a form
)

// readForm reads a posted form.
func readForm(w http.ResponseWriter, r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return refuse(http.StatusUnsupportedMediaType, "Only forms of this page are accepted")
	}

	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err = r.ParseForm()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return refuse(http.StatusRequestEntityTooLarge, "The form is too large")
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "The form cannot be read")
	}
	return nil
}

// stop stops a run, and returns to its page.
func (s *site) stop(w http.ResponseWriter, r *http.Request, run wire.Run) error {
	if err := readForm(w, r); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(r.Context(), formTimeout)
	defer cancel()
	how := wire.Stop{Force: r.PostForm.Get("force") == "true", Reason: r.PostForm.Get("reason")}
	_, err := s.service.Session(run.Session).Stop(ctx, run.TaskID, operator, how)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	s.Logger.Info("run stopped by an operator", "task_id", run.TaskID, "session", run.Session, "force", how.Force)
	http.Redirect(w, r, "/ui/runs/"+run.TaskID, http.StatusSeeOther)
	return nil
}

// disable keeps a schedule from firing again, and returns to the schedules.
func (s *site) disable(w http.ResponseWriter, r *http.Request) error {
	if err := readForm(w, r); err != nil {
		return err
	}

	id := r.PathValue("schedule")
	schedule, err := s.service.AllSessions().Unschedule(r.Context(), id)
	switch {
	case notFound(err):
		return errNoSchedule
	case err != nil:
		return err
	}

	s.Logger.Info("schedule disabled by an operator", "schedule_id", id, "session", schedule.Session)
	http.Redirect(w, r, "/ui/schedules", http.StatusSeeOther)
	return nil
}

// download makes an answer a file to be saved, not shown.
func download(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Security-Policy", filePolicy)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// output sends the raw output of a run that was kept so far.
func (s *site) output(w http.ResponseWriter, r *http.Request, run wire.Run) error {
	log, err := s.service.Session(run.Session).Log(r.Context(), run.TaskID)
	if err != nil {
		return err
	}

	download(w, run.TaskID+"-"+wire.OutputLog)
	if _, err := log.WriteTo(w); err != nil {
		panic(http.ErrAbortHandler) // shows the client that it is incomplete
	}
	return nil
}

// artifact sends a file of a run that has ended.
func (s *site) artifact(w http.ResponseWriter, r *http.Request, run wire.Run) error {
	name := r.PathValue("name")
	file, err := s.service.Session(run.Session).Open(r.Context(), run.TaskID, name)
	switch {
	case notFound(err):
		return refuse(http.StatusNotFound, "The run has no such file. Ended runs have "+wire.OutputLog+" and "+wire.ResultJSON)
	case err != nil:
		return err
	}

	defer file.Close()
	download(w, run.TaskID+"-"+name)
	http.ServeContent(w, r, "", run.FinishedAt, file)
	return nil
}
