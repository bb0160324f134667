package webui

import (
	"maps"
	"net/http"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// A questionView is an open question of a run, with the form to answer it.
type questionView struct {
	TaskID, Key, Message string
	Form                 form
	Problem              string // problem with an answer
}

func newQuestions(id string, open map[string]abi.Question) (all []questionView) {
	for _, key := range slices.Sorted(maps.Keys(open)) {
		all = append(all, questionView{TaskID: id, Key: key, Message: open[key].Message, Form: newForm("question-"+key, open[key].Schema)})
	}
	return all
}

var errAnswered = refuse(http.StatusConflict, "This question is no longer open: it was answered, or the run has ended")

// answerQuestion answers a question of a run, and returns to its page.
func (s *site) answerQuestion(w http.ResponseWriter, r *http.Request, run wire.Run) error {
	if err := readForm(w, r, maxCallForm); err != nil {
		return err
	}

	session, key := s.service.Session(run.Session), r.PostForm.Get("key")
	open, err := session.Questions(r.Context(), run.TaskID)
	if err != nil {
		return err
	}
	asked, ok := open[key]
	if !ok {
		return errAnswered
	}

	given, form := abi.Answer{Action: r.PostForm.Get("action")}, newForm("", asked.Schema)
	if given.Action == abi.AnswerAccept {
		if given.Content, ok = form.fill(r.PostForm); !ok {
			return s.unanswered(w, r, run.TaskID, key, "Not answered: some values are invalid")
		}
	}
	if err := session.Answer(r.Context(), run.TaskID, map[string]abi.Answer{key: given}); err != nil {
		return s.unanswered(w, r, run.TaskID, key, s.explain(r, err).Detail)
	}

	s.Logger.Info("question answered by an operator", "task_id", run.TaskID, "session", run.Session, "action", given.Action)
	http.Redirect(w, r, "/ui/runs/"+run.TaskID, http.StatusSeeOther)
	return nil
}

// unanswered shows a run again, with the typed answer and its problem.
func (s *site) unanswered(w http.ResponseWriter, r *http.Request, id, key, problem string) error {
	v, err := s.readRun(r.Context(), id)
	if err != nil {
		return err
	}
	for i := range v.Questions {
		if q := &v.Questions[i]; q.Key == key {
			_, _ = q.Form.fill(r.PostForm)
			q.Problem = problem
		}
	}
	return s.answer(w, r, http.StatusUnprocessableEntity, v.page())
}
