// Plugin research looks for the answer to a question in pages and files, which it reads
// with the help of other tools. The plugin needs the grant "tools".
package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/toolhost/toolhost/guest"
)

type researchArgs struct {
	Question string   `json:"question" desc:"What to look for, with the words that an answer would have" min:"3" max:"500"`
	Sources  []string `json:"sources" desc:"Addresses of web pages, and paths of text files in the workspace" min:"1" max:"20"`
	Quotes   int      `json:"quotes,omitempty" desc:"Return at most so many" min:"1" max:"50" default:"8"`
}

// quote is a passage that contains words from the question.
type quote struct {
	Source string   `json:"source"`
	Text   string   `json:"text"`
	Words  []string `json:"words" desc:"Words of the question that it has"`
	weight float64
}

type failure struct {
	Source string `json:"source"`
	Error  string `json:"error"`
}

type findings struct {
	Quotes []quote   `json:"quotes" desc:"The best first"`
	Failed []failure `json:"failed,omitempty" desc:"Sources that could not be read"`
}

// research reads all sources, and returns the passages that contain the rarest words of
// the question.
func research(c *guest.Call, in researchArgs) (findings, error) {
	found := findings{Quotes: []quote{}}
	for i, source := range in.Sources {
		if err := c.Progress(float64(i), float64(len(in.Sources)), "reading "+source); err != nil {
			break // stopped: what was found so far still counts
		}

		text, err := read(c, source)
		failed, _ := errors.AsType[*guest.ToolError](err)
		switch {
		case failed != nil && failed.Answer.Connection == nil: // the others may do
			found.Failed = append(found.Failed, failure{source, failed.Answer.Error})
		case err != nil:
			return found, err
		}
		for _, passage := range passages(text) {
			if words := shared(in.Question, passage); len(words) > 0 {
				found.Quotes = append(found.Quotes, quote{Source: source, Text: passage, Words: words})
			}
		}
	}

	rank(found.Quotes)
	found.Quotes = found.Quotes[:min(len(found.Quotes), cmp.Or(in.Quotes, 8))]
	_ = c.Summary(fmt.Sprintf("Found %d passages in %d of %d sources.", len(found.Quotes), len(in.Sources)-len(found.Failed), len(in.Sources)))
	return found, nil
}

// read returns the text of a source, using the tool that can read it.
func read(c *guest.Call, source string) (text string, err error) {
	if !strings.Contains(source, "://") {
		return text, c.CallTool("files_read", map[string]string{"path": source}, &text)
	}
	var page struct {
		Text string `json:"text"`
	}
	err = c.CallTool("web_fetch", map[string]string{"url": source}, &page)
	return page.Text, err
}

// maxPassage is the maximum length of a passage, in characters.
const maxPassage = 400

// passages splits a text into sentences, and into lines that contain no end of a
// sentence.
func passages(text string) (all []string) {
	for line := range strings.Lines(text) {
		for line != "" {
			end := len(line)
			for _, mark := range []string{". ", "! ", "? "} {
				if at := strings.Index(line, mark); at >= 0 {
					end = min(end, at+len(mark))
				}
			}
			passage := []rune(strings.TrimSpace(line[:end]))
			if line = line[end:]; len(passage) > 0 {
				all = append(all, string(passage[:min(len(passage), maxPassage)]))
			}
		}
	}
	return all
}

// shared returns the words of a question that a passage contains. It ignores short
// words, which say nothing.
func shared(question, passage string) []string {
	has := map[string]bool{}
	for _, word := range words(passage) {
		has[word] = true
	}
	var both []string
	for _, word := range words(question) {
		if len([]rune(word)) > 3 && has[word] {
			both = append(both, word)
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// rank sorts quotes by their words. A word counts more if few quotes contain it.
func rank(quotes []quote) {
	in := map[string]int{}
	for _, q := range quotes {
		for _, word := range q.Words {
			in[word]++
		}
	}
	for i := range quotes {
		for _, word := range quotes[i].Words {
			quotes[i].weight += 1 / float64(in[word])
		}
	}
	slices.SortStableFunc(quotes, func(a, b quote) int { return cmp.Compare(b.weight, a.weight) })
}

var plugin = guest.Plugin{
	Name: "research", Version: "1.0.0", Description: "Looks for answers in pages and files.", License: "Apache-2.0",
	Needs: guest.Needs{Tools: []string{"web_fetch", "files_read"}},
	Tools: []guest.Tool{{
		Name:        "research",
		Description: "Reads web pages and text files, and returns the passages that have most to do with a question, with their sources.",
		Handler:     guest.Handle(research),
		Hints:       guest.Hints{Readonly: true, Idempotent: true, SupportsBackground: true},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
