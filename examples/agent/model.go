package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
)

// A model replies to a conversation. In an app, it is an HTTP client.
type model func(ctx context.Context, messages []message, tools []tool) (reply, error)

type tool = json.RawMessage

type role string

const (
	user      role = "user"
	assistant role = "assistant"
)

// message is one turn of a conversation. A message from the user is a text, or the
// results of all calls from the previous turn.
type message struct {
	Role    role
	Text    string
	Calls   []call // only in messages from the assistant
	Results []result
}

type call struct {
	ID    string
	Name  string
	Input json.RawMessage
}

type result struct {
	CallID  string
	Text    string
	IsError bool
	Content []abi.Block // what the tool showed in addition to text: images, links, …
}

type reply struct {
	Text  string
	Calls []call
}

// String returns the message in the form shown in a transcript. What a tool wrote
// must not be able to control the terminal.
func (m message) String() string {
	var b strings.Builder
	if m.Text != "" {
		fmt.Fprintf(&b, "\n[%s] %s\n", m.Role, strings.TrimSpace(m.Text))
	}
	for _, c := range m.Calls {
		fmt.Fprintf(&b, "> %s %s %s\n", c.ID, c.Name, c.Input)
	}

	for _, r := range m.Results {
		mark := ""
		if r.IsError {
			mark = "error: "
		}
		fmt.Fprintf(&b, "< %s %s%s\n", r.CallID, mark, server.Clean([]byte(r.Text)))
	}
	return b.String()
}

const (
	task      = `How many primes are there below 10000000, and how many words has "to be or not to be"? Then rest for 3 seconds.`
	summarize = "Say in short what you have found out so far."
	soFar     = "So far: " // beginning of the reply to that
)

// script stands in for a model. Its replies depend only on what it is sent, as
// with a real model: it cannot finish without the results, the notices, and the
// snapshot that follows where the conversation was cut.
func script(_ context.Context, messages []message, tools []tool) (reply, error) {
	known := read(messages)
	switch {
	case known.asked:
		return known.summary()
	case known.Waits:
		return reply{}, errors.New("the model waits, is asked again and told nothing new")
	case len(messages) == 1 && !offered(tools, "spawn_background", "check_background", "wordcount", "clock_sleep", "note"):
		return reply{}, errors.New("the model has not the tools for the task")
	case len(messages) == 1:
		return known.call("Counting primes takes a while: it can run while I count the words.",
			"spawn_background", `{"tool":"primes","args":{"limit":10000000},"title":"Count primes"}`,
			"wordcount", `{"sentence":"to be or not to be"}`), nil
	case known.Words == 0 && strings.Contains(known.complaint, "missing: text"):
		return known.call("The argument is called text. And now the rest.",
			"wordcount", `{"text":"to be or not to be"}`,
			"clock_sleep", `{"seconds":3}`,
			"note", `{"text":"wordcount takes a text"}`), nil
	case known.Words == 0:
		return reply{}, fmt.Errorf("the model cannot tell what is wrong: %q", known.complaint)
	case len(known.ids(ended)) > 0:
		ids, _ := json.Marshal(known.ids(ended))
		return known.call("", "check_background", fmt.Sprintf(`{"task_ids":%s,"max_chars":60}`, ids)), nil
	case len(known.ids(running)) > 0:
		return reply{Text: "I wait for what still runs."}, nil
	case known.Primes == 0 || known.Rested == 0:
		return reply{}, errors.New("the model has lost sight of a run")
	}
	return reply{Text: fmt.Sprintf("There are %d primes, it is %d words, and I had a rest of %g seconds.", known.Primes, known.Words, known.Rested)}, nil
}

// memory is what the script knows from a conversation. Its summary contains the
// exported fields.
type memory struct {
	Words, Primes int
	Rested        float64
	Ended         []string `json:",omitempty"` // runs whose end it was notified of, but whose results it has not read
	Waits         bool     // whether it has nothing to do until the next notice

	asked     bool            // whether it was asked for a summary
	calls     map[string]call // calls by id
	complaint string          // complaint about its call of wordcount
	runs      map[string]progress
}

// progress is how much the script knows about a background run.
type progress int

const (
	running progress = iota
	ended            // a notice said that the run has ended
	looked           // it has the run's result
)

func read(messages []message) *memory {
	m := &memory{calls: map[string]call{}, runs: map[string]progress{}}
	for _, turn := range messages {
		for _, c := range turn.Calls {
			m.calls[c.ID] = c
		}
		for _, r := range turn.Results {
			m.learn(r)
		}
		if turn.Role == user {
			m.listen(turn.Text)
		} else {
			m.Waits = len(turn.Calls) == 0
		}
	}
	return m
}

// learn reads the result of a call.
func (m *memory) learn(r result) {
	type report struct {
		TaskID string `json:"task_id"`
		Done   bool   `json:"done"`
		Result struct {
			Count  int     `json:"count"`
			Rested float64 `json:"slept_seconds"`
		} `json:"result"`
	}
	var answer struct {
		report
		Words int      `json:"words"`
		Tasks []report `json:"tasks"`
	}
	if r.IsError || json.Unmarshal([]byte(r.Text), &answer) != nil {
		m.complaint = r.Text
		return
	}
	m.Words = max(m.Words, answer.Words)
	for _, run := range append(answer.Tasks, answer.report) {
		m.Primes, m.Rested = max(m.Primes, run.Result.Count), max(m.Rested, run.Result.Rested)
		switch {
		case run.Done:
			m.runs[run.TaskID] = looked
		case run.TaskID != "":
			m.runs[run.TaskID] = running
		}
	}
}

var (
	noticeLine   = regexp.MustCompile(`(?m)^\[(bg_\w+)\] succeeded`)
	snapshotLine = regexp.MustCompile(`(?m)^(bg_\w+) (?:queued|running|waiting) `)
)

// listen reads a text from the user: a question, notices, or what is left of a
// conversation.
func (m *memory) listen(text string) {
	m.asked = text == summarize
	if _, left, ok := strings.Cut(text, soFar); ok {
		_ = json.NewDecoder(strings.NewReader(left)).Decode(m)
		for _, match := range snapshotLine.FindAllStringSubmatch(left, -1) {
			m.runs[match[1]] = running
		}
		for _, id := range m.Ended {
			m.runs[id] = ended
		}
	}

	for _, match := range noticeLine.FindAllStringSubmatch(text, -1) {
		m.runs[match[1]], m.Waits = ended, false
	}
}

// ids returns the runs that have reached this state.
func (m *memory) ids(p progress) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(m.runs)) {
		if m.runs[id] == p {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *memory) summary() (reply, error) {
	m.Ended = m.ids(ended)
	text, err := json.Marshal(m)
	return reply{Text: string(text)}, err
}

// call returns a reply that contains calls, given as alternating names and inputs.
func (m *memory) call(text string, namesAndInputs ...string) reply {
	r := reply{Text: text}
	for pair := range slices.Chunk(namesAndInputs, 2) {
		id := fmt.Sprintf("call-%d", len(m.calls)+len(r.Calls)+1)
		r.Calls = append(r.Calls, call{id, pair[0], json.RawMessage(pair[1])})
	}
	return r
}

// offered reports whether all of these tools are available.
func offered(tools []tool, names ...string) bool {
	all := string(slices.Concat(tools...))
	return !slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(all, `{"name":"`+name+`"`) })
}
