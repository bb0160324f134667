package guesttest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

// Accept returns the answer of a user who accepts a question. The content is a JSON
// object that fits the question's schema.
func Accept(content string) guest.Answer {
	return guest.Answer{Action: abi.AnswerAccept, Content: []byte(content)}
}

// ask answers the questions of a tool, as a host does: an answer that does not fit its
// question never reaches the tool.
func (c *call) ask(request []byte) (any, error) {
	asked, err := abi.DecodeQuestions(request)
	if err != nil {
		return nil, &guest.HostError{Code: "invalid", Message: err.Error()}
	}
	if c.Answers == nil {
		return nil, &guest.HostError{Code: "denied", Message: "ask is not granted to this plugin"}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	given := map[string]guest.Answer{}
	for _, key := range slices.Sorted(maps.Keys(asked.Questions)) {
		c.out.Questions = append(c.out.Questions, asked.Questions[key])
		answer, ok := c.Answers[key]
		if !ok {
			return nil, fmt.Errorf("no answer to the question %q is among the Answers of the test", key)
		}
		if problem := wrongAnswer(asked.Questions[key], answer); problem != "" {
			return nil, fmt.Errorf("%w %s: %s", abi.ErrAnswer, key, problem)
		}
		given[key] = answer
	}
	return abi.Answers{Answers: given}, nil
}

// wrongAnswer returns what is wrong with an answer, or nothing.
func wrongAnswer(q guest.Question, a guest.Answer) string {
	switch {
	case a.Action == abi.AnswerAccept && len(a.Content) == 0:
		return "it has no content"
	case a.Action == abi.AnswerAccept:
		return misfit(q.Schema, a.Content)
	case a.Action != abi.AnswerDecline && a.Action != abi.AnswerCancel:
		return fmt.Sprintf("expected the action accept, decline or cancel, found %q", a.Action)
	case len(a.Content) > 0:
		return "only an accepted question has content"
	}
	return ""
}

// Folder returns the test's folder for a folder of the plugin. A path that is not granted
// cannot be opened.
func (c *call) Folder(path string) string {
	if dir, ok := c.Folders[path]; ok {
		return dir
	}
	return filepath.Join(os.DevNull, "not in guesttest.Host.Folders", path)
}
