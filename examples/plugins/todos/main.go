// Plugin todos keeps a list in a folder that the operator grants as /data.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolhost/toolhost/guest"
)

// store is the path of the folder that contains the list.
type store string

type todo struct {
	ID   int    `json:"id"`
	Text string `json:"text"`
	Done bool   `json:"done"`
}

type list struct {
	Todos []todo `json:"todos"`
}

type addArgs struct {
	Text string `json:"text" desc:"What is to be done" min:"1" max:"1000"`
}

type doneArgs struct {
	ID int `json:"id" desc:"Number of the todo, as list shows it" min:"1"`
}

type clearArgs struct {
	All bool `json:"all" desc:"Remove the open ones too" default:"false"`
}

func (s store) add(_ *guest.Call, in addArgs) (todo, error) {
	l, err := s.load()
	if err != nil {
		return todo{}, err
	}
	t := todo{ID: 1, Text: in.Text}
	for _, other := range l.Todos {
		t.ID = max(t.ID, other.ID+1)
	}
	l.Todos = append(l.Todos, t)
	return t, s.save(l)
}

func (s store) list(*guest.Call, struct{}) (list, error) { return s.load() }

func (s store) done(_ *guest.Call, in doneArgs) (todo, error) {
	l, err := s.load()
	if err != nil {
		return todo{}, err
	}
	i := slices.IndexFunc(l.Todos, func(t todo) bool { return t.ID == in.ID })
	if i < 0 {
		return todo{}, fmt.Errorf("there is no todo %d", in.ID)
	}
	l.Todos[i].Done = true
	return l.Todos[i], s.save(l)
}

func (s store) clear(c *guest.Call, in clearArgs) (list, error) {
	l, err := s.load()
	if err != nil {
		return l, err
	}
	if open := l.open(); in.All && open > 0 {
		if err := confirm(c, fmt.Sprintf("Remove %d open todos?", open)); err != nil {
			return l, err
		}
	}
	l.Todos = slices.DeleteFunc(l.Todos, func(t todo) bool { return in.All || t.Done })
	return l, s.save(l)
}

// open returns the number of todos that are not done.
func (l list) open() (n int) {
	for _, t := range l.Todos {
		if !t.Done {
			n++
		}
	}
	return n
}

// confirm asks the user for confirmation. It must be called before anything is changed,
// because a client may answer by repeating the call. If nobody can be asked, nobody has
// agreed.
func confirm(c *guest.Call, message string) error {
	answers, err := c.Ask(map[string]guest.Question{
		"sure": guest.Form(message, `{"type":"object","properties":{"yes":{"type":"boolean","title":"Remove them"}},"required":["yes"]}`),
	})
	if errors.Is(err, guest.ErrDenied) {
		return fmt.Errorf("open todos are removed only after the user has agreed: %w", err)
	}
	if err != nil {
		return err
	}

	var form struct{ Yes bool }
	if answer := answers["sure"]; answer.Action == "accept" {
		err = json.Unmarshal(answer.Content, &form)
	}
	if err == nil && !form.Yes {
		err = errors.New("the user wants to keep the open todos")
	}
	return err
}

func (s store) file() string { return filepath.Join(string(s), "todos.json") }

func (s store) load() (list, error) {
	l := list{Todos: []todo{}}
	data, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("%s is damaged: %w", s.file(), err)
	}
	return l, nil
}

// save replaces the list in one step, so that a call stopped halfway leaves the old list
// intact.
func (s store) save(l list) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	temporary := s.file() + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, s.file())
}

func newPlugin(s store) *guest.Plugin {
	hints := guest.Hints{OpenWorld: new(false), Destructive: new(false), Concurrency: "serial"}
	reads, marks, clears := hints, hints, hints
	reads.Readonly, reads.Idempotent = true, true
	marks.Idempotent = true
	clears.Idempotent, clears.Destructive = true, new(true)
	return &guest.Plugin{
		Name: "todos", Version: "1.0.0", Description: "Keeps a list of todos.", License: "Apache-2.0",
		Needs: guest.Needs{Files: []guest.FileNeed{{Path: "/data", Mode: "write"}}},
		Tools: []guest.Tool{
			{Name: "add", Description: "Adds a todo.", Handler: guest.Handle(s.add), Hints: hints},
			{Name: "list", Description: "Lists all todos.", Handler: guest.Handle(s.list), Hints: reads},
			{
				Name: "done", Description: "Marks a todo as done.", Handler: guest.Handle(s.done), Hints: marks,
				Examples: []guest.Example{{Name: "unknown", Args: doneArgs{1_000_000}, Error: "there is no todo 1000000"}},
			},
			{Name: "clear", Description: "Removes the todos that are done.", Handler: guest.Handle(s.clear), Hints: clears, Needs: guest.Needs{Optional: &guest.Needs{Ask: true}}},
		},
	}
}

func init() { guest.Serve(newPlugin("/data")) }

func main() {}
