package webui

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

const (
	operator    = "operator"  // name of the requester in the record of a stop
	formTimeout = time.Second // how long a form waits for its effect; after that, the page shows the progress
	maxForm     = 16 << 10    // bytes of a form without arguments
	maxChosen   = 200         // runs stopped or removed together
)

// readForm reads a posted form. Its parameter most limits the size, in bytes.
func readForm(w http.ResponseWriter, r *http.Request, most int64) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return refuse(http.StatusUnsupportedMediaType, "Only forms of this page are accepted")
	}

	r.Body = http.MaxBytesReader(w, r.Body, most)
	err = r.ParseForm()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return refuse(http.StatusRequestEntityTooLarge, "The form is too large")
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "The form cannot be read")
	}
	return nil
}

// handleRun is like handle, but for requests about a run of any session.
func (s *site) handleRun(pattern string, handle func(http.ResponseWriter, *http.Request, wire.Run) error) {
	s.handle(pattern, func(w http.ResponseWriter, r *http.Request) error {
		run, err := s.find(r.Context(), r.PathValue("run"))
		if err != nil {
			return err
		}
		return handle(w, r, run)
	})
}

// postRun is like post, but for forms about a run of any session.
func (s *site) postRun(pattern string, most int64, act func(*http.Request, wire.Run) (to string, err error)) {
	s.post(pattern, most, func(r *http.Request) (string, error) {
		run, err := s.find(r.Context(), r.PathValue("run"))
		if err != nil {
			return "", err
		}
		return act(r, run)
	})
}

// find returns a run of any session.
func (s *site) find(ctx context.Context, id string) (wire.Run, error) {
	run, err := s.service.AllSessions().Run(ctx, id)
	if notFound(err) {
		err = errNoRun
	}
	return run, err
}

// pathOf returns the address of the page of a run.
func pathOf(run wire.Run) string { return "/ui/runs/" + run.TaskID }

// stop stops a run, and returns to its page.
func (s *site) stop(r *http.Request, run wire.Run) (to string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), formTimeout)
	defer cancel()
	how := wire.Stop{Force: r.PostForm.Get("force") == "true", Alone: r.PostForm.Get("alone") == "true", Reason: r.PostForm.Get("reason")}
	return pathOf(run), s.stopRun(ctx, run, how)
}

func (s *site) stopRun(ctx context.Context, run wire.Run, how wire.Stop) error {
	_, err := s.service.Session(run.Session).Stop(ctx, run.TaskID, operator, how)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.Logger.Info("run stopped by an operator", "task_id", run.TaskID, "session", run.Session, "force", how.Force)
	return nil
}

// postMany is like post, but for a form about the chosen runs. It returns to the list of
// runs, and ignores runs that no longer exist.
func (s *site) postMany(pattern string, act func(ctx context.Context, run wire.Run, form url.Values) error) {
	s.post(pattern, maxForm, func(r *http.Request) (to string, err error) {
		chosen := r.PostForm["run"]
		if len(chosen) > maxChosen {
			return "", refuse(http.StatusUnprocessableEntity, "Too many runs at once: choose at most 200")
		}

		var acting sync.WaitGroup
		errs := make([]error, len(chosen))
		for i, id := range chosen {
			acting.Go(func() {
				run, err := s.service.AllSessions().Run(r.Context(), id)
				if err == nil {
					err = act(r.Context(), run, r.PostForm)
				}
				if !notFound(err) {
					errs[i] = err
				}
			})
		}
		acting.Wait()

		to = "/"
		if back, err := url.ParseQuery(r.PostForm.Get("back")); err == nil && r.PostForm.Has("back") {
			to = strings.TrimSuffix("/ui/runs?"+back.Encode(), "?")
		}
		return to, errors.Join(errs...)
	})
}

func (s *site) stopIfActive(ctx context.Context, run wire.Run, form url.Values) error {
	if run.Status.Terminal() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, formTimeout)
	defer cancel()
	return s.stopRun(ctx, run, wire.Stop{Force: form.Get("force") == "true"})
}

func (s *site) removeIfEnded(ctx context.Context, run wire.Run, _ url.Values) error {
	if !run.Done {
		return nil
	}
	return s.removeRun(ctx, run)
}

// remove removes a run that has ended, and returns to the runs.
func (s *site) remove(r *http.Request, run wire.Run) (to string, err error) {
	return "/ui/runs", s.removeRun(r.Context(), run)
}

func (s *site) removeRun(ctx context.Context, run wire.Run) error {
	if err := s.service.Session(run.Session).Remove(ctx, run.TaskID); err != nil {
		return err
	}
	s.Logger.Info("run removed by an operator", "task_id", run.TaskID, "session", run.Session)
	return nil
}

// send sends a message to a run, and returns to its page.
func (s *site) send(r *http.Request, run wire.Run) (to string, err error) {
	text := strings.TrimSpace(r.PostForm.Get("message"))
	if text == "" {
		return "", refuse(http.StatusUnprocessableEntity, "The message is empty")
	}
	sent, err := s.service.Session(run.Session).Send(r.Context(), run.TaskID, operator, wire.MessageOf(text))
	if err != nil {
		return "", err
	}
	s.Logger.Info("message sent by an operator", "task_id", run.TaskID, "session", run.Session, "message_id", sent.ID)
	return pathOf(run), nil
}

// rerun starts a run with the arguments of another one, and shows the new run.
func (s *site) rerun(r *http.Request, run wire.Run) (to string, err error) {
	started, err := s.service.Session(run.Session).Rerun(r.Context(), run.TaskID, operator)
	if err != nil {
		return "", err
	}
	s.Logger.Info("run repeated by an operator", "task_id", started.TaskID, "repeated", run.TaskID, "session", run.Session)
	return pathOf(started), nil
}

// download marks a response as a file to save, not to show.
func download(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Security-Policy", filePolicy)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// output sends the part of a run's raw output that is stored so far.
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
