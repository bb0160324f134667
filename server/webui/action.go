package webui

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

const (
	// operator is who asks for what is asked for here, as records say it.
	operator = "operator"
	// patience is how long a form waits for what it asked for. Then the page
	// shows that it is on its way.
	patience = time.Second
	maxForm  = 8 << 10 // bytes of a form
)

// form reads a form that was posted.
func form(w http.ResponseWriter, r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return &refusal{http.StatusUnsupportedMediaType, "Only forms of this page are taken"}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return err
		}
		return &refusal{http.StatusBadRequest, "The form cannot be read"}
	}
	return nil
}

// stop ends a run, in the name of its own session, and goes back to its page.
func (s *site) stop(w http.ResponseWriter, r *http.Request) error {
	if err := form(w, r); err != nil {
		return err
	}
	run, err := s.record(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	_, err = s.service.Runs().Stop(ctx, run.Session, run.ID, background.StopRequest{
		Force: r.PostForm.Get("force") == "true", Reason: r.PostForm.Get("reason"), By: operator,
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.log.Info("run stopped by an operator", "task_id", run.ID, "session", run.Session, "force", r.PostForm.Get("force") == "true")
	http.Redirect(w, r, "/ui/runs/"+run.ID, http.StatusSeeOther)
	return nil
}

// disable keeps a schedule from firing again, and goes back to the schedules.
func (s *site) disable(w http.ResponseWriter, r *http.Request) error {
	if err := form(w, r); err != nil {
		return err
	}
	id := r.PathValue("schedule")
	if !background.IsScheduleID(id) {
		return background.ErrNoSchedule
	}
	schedule, err := s.service.Runs().AnySchedule(r.Context(), id)
	if err == nil {
		_, err = s.service.Runs().Unschedule(r.Context(), schedule.Session, id)
	}
	if err != nil {
		return err
	}
	s.log.Info("schedule disabled by an operator", "schedule_id", id, "session", schedule.Session)
	http.Redirect(w, r, "/ui/schedules", http.StatusSeeOther)
	return nil
}
