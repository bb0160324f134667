// Plugin keywords finds the words that many texts have in common. As a background run,
// it accepts further texts as messages, while the agent is still reading them, until it
// is told to finish or no message arrives for a while.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toolhost/toolhost/guest"
)

const (
	shortest = 4    // minimum number of letters; shorter words say little
	longest  = 40   // maximum number of bytes in a word
	maxWords = 8000 // maximum number of different words that are counted, so that a checkpoint takes less than 1 MiB
)

type args struct {
	Texts       []string `json:"texts,omitempty" desc:"The first texts"`
	Top         int      `json:"top,omitempty" desc:"Return so many words" default:"10" min:"1" max:"100"`
	IdleSeconds int      `json:"idle_seconds,omitempty" desc:"In the background: finish when no message has come for so long" default:"600" min:"1" max:"3600"`
}

type word struct {
	Word  string `json:"word"`
	Texts int    `json:"texts" desc:"How many texts have it"`
	Count int    `json:"count" desc:"How often it is in all texts together"`
}

type result struct {
	Texts int    `json:"texts" desc:"How many texts were read"`
	Words []word `json:"words" desc:"The words in most texts first"`
	Full  bool   `json:"full,omitempty" desc:"There were too many different words: later ones were not counted"`
}

// message is a message to a run. If it is a string, that is a text.
type message struct {
	Text   string `json:"text"`
	Finish bool   `json:"finish"`
}

// state is a checkpoint: it contains everything needed to continue.
type state struct {
	Last     int64             `json:"last"` // id of the last message that was counted
	Begun    bool              `json:"begun"`
	Finished bool              `json:"finished"`
	Texts    int               `json:"texts"`
	Full     bool              `json:"full"`
	Counts   map[string][2]int `json:"counts"` // for each word: how many texts contain it, and how often it occurs in all of them
}

func keywords(c *guest.Call, in args) (result, error) {
	s := state{Counts: map[string][2]int{}}
	data, err := c.LoadCheckpoint()
	if err == nil && data != nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && !s.Begun {
		for _, text := range in.Texts {
			s.add(text)
		}
		s.Begun = true
		err = s.save(c)
	}
	if err == nil {
		err = s.read(c, time.Duration(in.IdleSeconds)*time.Second)
	}
	if err != nil {
		return result{}, err
	}

	r := s.result(in.Top)
	if len(r.Words) == 0 {
		return r, c.Summary(fmt.Sprintf("No words in %d texts.", r.Texts))
	}
	return r, c.Summary(fmt.Sprintf("Read %d texts; most share %q.", r.Texts, r.Words[0].Word))
}

// read counts the texts in messages until one of them says finish, or no message
// arrives for a while. A direct call gets no messages.
func (s *state) read(c *guest.Call, idle time.Duration) error {
	if err := c.ProgressUnit("texts"); err != nil {
		return err
	}
	for !s.Finished {
		if err := c.Progress(float64(s.Texts), -1, "waiting for the next"); err != nil {
			return err
		}
		m, err := c.Receive(idle)
		switch {
		case errors.Is(err, guest.ErrDenied), err == nil && m == nil:
			return nil
		case err != nil:
			return err
		case m.ID <= s.Last: // an earlier attempt has counted it, and was interrupted before it took the next
			continue
		}

		s.Last = m.ID
		if err := s.take(m.Data); err != nil { // the others may be better
			fmt.Fprintf(c.Output(), "message %d was not understood: %v\n", m.ID, err)
		}
		if err := s.save(c); err != nil {
			return err
		}
	}
	return nil
}

var errForm = errors.New(`send a text as a string or as {"text": …}, and {"finish": true} at the end`)

func (s *state) take(data json.RawMessage) error {
	var m message
	if json.Unmarshal(data, &m.Text) != nil && json.Unmarshal(data, &m) != nil || m == (message{}) {
		return errForm
	}
	if m.Text != "" {
		s.add(m.Text)
	}
	s.Finished = m.Finish
	return nil
}

func (s *state) add(text string) {
	s.Texts++
	seen := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if utf8.RuneCountInString(w) < shortest || len(w) > longest {
			continue
		}
		n, known := s.Counts[w]
		if !known && len(s.Counts) == maxWords {
			s.Full = true
			continue
		}
		if !seen[w] {
			seen[w] = true
			n[0]++
		}
		n[1]++
		s.Counts[w] = n
	}
}

func (s *state) save(c *guest.Call) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return c.SaveCheckpoint(data)
}

func (s *state) result(top int) result {
	words := slices.SortedFunc(maps.Keys(s.Counts), func(a, b string) int {
		x, y := s.Counts[a], s.Counts[b]
		return cmp.Or(cmp.Compare(y[0], x[0]), cmp.Compare(y[1], x[1]), strings.Compare(a, b))
	})
	r := result{Texts: s.Texts, Words: []word{}, Full: s.Full}
	for _, w := range words[:min(top, len(words))] {
		r.Words = append(r.Words, word{w, s.Counts[w][0], s.Counts[w][1]})
	}
	return r
}

var plugin = guest.Plugin{
	Name: "keywords", Version: "1.0.0", Description: "Finds the words that many texts share.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:  "keywords",
		Title: "Find keywords",
		Description: `Finds the words that many texts share. In the background it reads more texts as messages while it runs: ` +
			`send each as a string, and {"finish":true} at the end.`,
		Handler: guest.Handle(keywords),
		Hints: guest.Hints{
			SupportsBackground: true, Messages: true, Idempotent: true, Readonly: true, OpenWorld: new(false),
		},
		Limits: guest.Limits{BackgroundSeconds: 3600},
		Examples: []guest.Example{
			{Name: "nothing", Args: args{}, Result: result{Words: []word{}}},
			{Name: "two texts", Args: args{Texts: []string{"Green tea, black tea", "Green leaves; green hills"}, Top: 2},
				Result: result{Texts: 2, Words: []word{{"green", 2, 3}, {"black", 1, 1}}}},
		},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
