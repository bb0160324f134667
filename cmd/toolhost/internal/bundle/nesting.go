package bundle

import (
	"errors"
	"fmt"
	"strings"
)

// The bundler recurses for nested code, and a source that exhausts the stack would
// end the process.
const (
	maxSource = 4 << 20   // bytes of a file
	maxDepth  = 1_000     // brackets inside each other
	maxRun    = 100 << 10 // bytes of an expression, without nested brackets
	maxCommas = 50_000    // commas between expressions of a statement
)

// errNested: the bundler might not survive the source.
var errNested = errors.New("the source cannot be bundled")

// bracket is an open bracket.
type bracket struct {
	kind      byte // ( [ { or, for a template, `
	statement      // statement around it
}

// statement has the counts of one statement.
type statement struct{ run, commas int }

// checkNesting refuses sources that are nested too deeply. It does not parse: it skips
// strings and comments, and takes regular expressions for operators.
func checkNesting(source []byte) error {
	if len(source) > maxSource {
		return fmt.Errorf("%w: it has %d bytes, and at most %d are allowed", errNested, len(source), maxSource)
	}

	var open []bracket
	inner := func() byte { // the innermost bracket
		if len(open) == 0 {
			return 0
		}
		return open[len(open)-1].kind
	}
	var now statement
	for i := 0; i < len(source); i++ {
		c := source[i]
		if inner() == '`' { // inside the text of a template
			switch {
			case c == '\\':
				i++
			case c == '`':
				now = open[len(open)-1].statement
				open = open[:len(open)-1]
			case c == '$' && i+1 < len(source) && source[i+1] == '{':
				open, now = append(open, bracket{'{', now}), statement{}
				i++
			}
			continue
		}

		now.run++
		switch c {
		case '(', '[', '{', '`':
			open, now = append(open, bracket{c, now}), statement{}
		case ')', ']', '}':
			if len(open) > 0 {
				now = open[len(open)-1].statement
				open = open[:len(open)-1]
			}
			if c == '}' && endsStatement(source[i+1:]) {
				now = statement{}
			}
		case ',':
			switch inner() {
			case '(':
			case '[':
				now = statement{}
			default:
				now = statement{commas: now.commas + 1}
			}
		case ';':
			if inner() != '(' && !strings.HasPrefix(next(source[i+1:]), "else") {
				now = statement{}
			}
		case '"', '\'':
			for i++; i < len(source) && source[i] != c && source[i] != '\n'; i++ {
				if source[i] == '\\' {
					i++
				}
			}
		case '/':
			i = skipComment(source, i)
		}
		switch {
		case len(open) > maxDepth:
			return fmt.Errorf("%w: more than %d brackets are within each other at byte %d", errNested, maxDepth, i)
		case now.run > maxRun:
			return fmt.Errorf("%w: an expression has more than %d bytes at byte %d", errNested, maxRun, i)
		case now.commas > maxCommas:
			return fmt.Errorf("%w: a statement has more than %d commas at byte %d", errNested, maxCommas, i)
		}
	}
	return nil
}

// endsStatement reports whether a block followed by rest may end a statement, rather
// than be part of a longer one.
func endsStatement(rest []byte) bool {
	word := next(rest)
	for _, more := range []string{"else", "in", "instanceof", "of", "as", "satisfies"} {
		if word == more {
			return false
		}
	}
	return word == "" || word[0] == '}' || word[0] == '_' || word[0] == '$' || word[0] == '@' || word[0]|32 >= 'a' && word[0]|32 <= 'z'
}

// next returns the first word or character of a source, without spaces and comments.
func next(source []byte) string {
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
		case c == '/' && skipComment(source, i) > i:
			i = skipComment(source, i)
		default:
			end := i + 1
			for end < len(source) && end < i+16 && source[end]|32 >= 'a' && source[end]|32 <= 'z' {
				end++
			}
			return string(source[i:end])
		}
	}
	return ""
}

// skipComment returns where the comment that may begin at i ends.
func skipComment(source []byte, i int) int {
	if i+1 >= len(source) || source[i+1] != '/' && source[i+1] != '*' {
		return i
	}
	line := source[i+1] == '/'
	for i += 2; i < len(source); i++ {
		if line && source[i] == '\n' || !line && source[i] == '/' && source[i-1] == '*' {
			break
		}
	}
	return i
}
