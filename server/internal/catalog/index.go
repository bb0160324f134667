package catalog

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/declare"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// Limits of a search.
const (
	MaxQuery      = 400 // maximum length of a query, in characters; the rest is ignored
	maxQueryWords = 16  // maximum number of words of a query
	maxToolWords  = 400 // maximum number of different words of a tool
)

// The weights of a tool's words, by the place where they occur.
const (
	inName        = 8.0
	inTitle       = 5.0
	inDescription = 3.0
	inProperty    = 3.0 // names of arguments and of result members
	inSchema      = 1.0 // other texts of the schemas
)

// An Entry is a tool that a search can find.
type Entry struct {
	Tool        *abi.Tool
	Name        string // name for agents
	Description string // description for models
}

// index holds the words and declarations of tools. It caches them for the tools of the last
// search, and is safe for concurrent use.
type index struct {
	mu   sync.Mutex
	docs map[*abi.Tool]*document
}

// document is the entry of a tool in the index.
type document struct {
	words       map[string]float64 // weights by word
	declaration func() string
}

// among returns the documents of tools, in their order.
func (x *index) among(tools []Entry) []*document {
	x.mu.Lock()
	defer x.mu.Unlock()

	docs, kept := make([]*document, len(tools)), make(map[*abi.Tool]*document, len(tools))
	for i, t := range tools {
		d := x.docs[t.Tool]
		if d == nil {
			d = newDocument(t)
		}
		docs[i], kept[t.Tool] = d, d
	}
	x.docs = kept
	return docs
}

func newDocument(t Entry) *document {
	d := &document{words: map[string]float64{}}
	d.add(t.Name, inName)
	d.add(t.Tool.Title, inTitle)
	d.add(t.Tool.Description, inDescription)
	for _, schema := range []json.RawMessage{t.Tool.InputSchema, t.Tool.OutputSchema} {
		var parsed any
		_ = json.Unmarshal(schema, &parsed) // it is valid, or the tool has no schema
		d.addSchema(parsed)
	}

	d.declaration = sync.OnceValue(func() string {
		return declare.Declaration(declare.Tool{Name: t.Name, Input: t.Tool.InputSchema, Output: t.Tool.OutputSchema})
	})
	return d
}

// add adds the words of a text. A word that occurs several times keeps its highest weight.
func (d *document) add(text string, weight float64) {
	for _, w := range words(text) {
		if _, known := d.words[w]; known || len(d.words) < maxToolWords {
			d.words[w] = max(d.words[w], weight)
		}
	}
}

// addSchema adds the words of a schema.
func (d *document) addSchema(schema any) {
	switch v := schema.(type) {
	case []any:
		for _, item := range v {
			d.addSchema(item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) { // sorted, so that the same words are kept if there are too many
			inner := v[key]
			properties, _ := inner.(map[string]any)
			values, _ := inner.([]any)
			text, _ := inner.(string)
			switch key {
			case "properties":
				for _, name := range slices.Sorted(maps.Keys(properties)) {
					d.add(name, inProperty)
				}
			case "enum":
				for _, value := range values {
					text, _ := value.(string)
					d.add(text, inSchema)
				}
			case "description", "title":
				d.add(text, inSchema)
			}
			d.addSchema(inner)
		}
	}
}

// match returns the weight of a query word for the tool. It is less if the word is only a
// prefix of a word of the tool, or the other way round.
func (d *document) match(word string) float64 {
	if weight := d.words[word]; weight > 0 {
		return weight
	}

	best := 0.0
	for own, weight := range d.words {
		short, long := min(len(own), len(word)), max(len(own), len(word))
		if short >= 3 && own[:short] == word[:short] {
			best = max(best, weight*float64(short)/float64(2*long))
		}
	}
	return best
}

// find returns the indices of the tools that match words of a query, best first: the tool
// that the query names, then the tools that match most of its words, and the rarest ones. A
// query without words finds all tools.
func (x *index) find(query string, tools []Entry) []int {
	query = reason.Clip(query, MaxQuery)
	wanted, docs := words(query), x.among(tools)
	if telling := slices.DeleteFunc(slices.Clone(wanted), isFiller); len(telling) > 0 {
		wanted = telling
	}
	wanted = wanted[:min(len(wanted), maxQueryWords)]

	scores := make([]float64, len(tools))
	for _, word := range wanted {
		matches, n := make([]float64, len(tools)), 0.0
		for i, d := range docs {
			if matches[i] = d.match(word); matches[i] > 0 {
				n++
			}
		}
		rare := math.Log(1 + (float64(len(tools))-n+0.5)/(n+0.5))
		for i := range scores {
			scores[i] += rare * matches[i]
		}
	}

	var found []int
	for i, t := range tools {
		if t.Name == strings.TrimSpace(query) {
			scores[i] = math.Inf(1)
		}
		if scores[i] > 0 || len(wanted) == 0 {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(tools[a].Name, tools[b].Name))
	})
	return found
}

// isFiller reports whether a query word says nothing about a tool.
func isFiller(word string) bool {
	switch word {
	case "a", "an", "and", "the", "of", "to", "in", "on", "or", "for", "from", "by", "with", "is", "it", "that", "this", "how", "what", "tool":
		return true
	}
	return false
}

// words returns the distinct words of a text in lower case: letters and digits. A word
// such as readFile also yields its parts. Plurals count as the singular.
func words(text string) []string {
	var all []string
	seen := map[string]bool{}
	for _, run := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		parts := camelParts(run)
		if len(parts) > 1 {
			parts = append(parts, run)
		}
		for _, part := range parts {
			if w := singular(strings.ToLower(part)); !seen[w] {
				seen[w] = true
				all = append(all, w)
			}
		}
	}
	return all
}

// camelParts splits a word where a lower-case letter is followed by an upper-case one.
func camelParts(word string) (parts []string) {
	start, last := 0, rune(0)
	for i, r := range word {
		if unicode.IsUpper(r) && unicode.IsLower(last) {
			parts = append(parts, word[start:i])
			start = i
		}
		last = r
	}
	return append(parts, word[start:])
}

// singular returns an English word without the s of a plural.
func singular(word string) string {
	switch {
	case len(word) > 4 && strings.HasSuffix(word, "ies"):
		return word[:len(word)-3] + "y"
	case len(word) > 3 && strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss"):
		return word[:len(word)-1]
	}
	return word
}
