// Plugin wordcount counts the lines, words, characters and bytes in a text.
package main

import (
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/guest"
)

type args struct {
	Text string `json:"text" desc:"Text to count"`
}

type counts struct {
	Lines      int `json:"lines"`
	Words      int `json:"words"`
	Characters int `json:"characters" desc:"Unicode code points"`
	Bytes      int `json:"bytes" desc:"Bytes in UTF-8"`
}

// count counts in the same way as wc, except that here a last line without a
// line feed is a line too.
func count(_ *guest.Call, in args) (counts, error) {
	lines := strings.Count(in.Text, "\n")
	if in.Text != "" && !strings.HasSuffix(in.Text, "\n") {
		lines++
	}
	return counts{lines, len(strings.Fields(in.Text)), utf8.RuneCountInString(in.Text), len(in.Text)}, nil
}

var plugin = guest.Plugin{
	Name: "wordcount", Version: "1.0.0", Description: "Counts lines, words, characters and bytes.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:        "wordcount",
		Title:       "Word count",
		Description: "Counts the lines, words, characters and bytes of a text.",
		Handler:     guest.Handle(count),
		Hints:       guest.Hints{Idempotent: true, Readonly: true, OpenWorld: new(false)},
		Examples: []guest.Example{
			{Name: "two words", Args: args{"a b"}, Result: counts{1, 2, 3, 3}},
			{Name: "no text", Args: args{""}, Result: counts{}},
			{Name: "more than ASCII", Args: args{"grüezi\nmitenand\n"}, Result: counts{2, 2, 16, 17}},
		},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
