package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// sed edits lines. It supports the commands s, d, p and q, with the addresses N, $ and /RE/,
// or two of them separated by a comma. Regular expressions are in RE2 syntax, with or
// without -E. -i changes files in place.
func sed(c *command) error {
	opts, args, err := c.options("nEre:i")
	if err != nil {
		return err
	}
	script, given := opts['e']
	if !given {
		if len(args) == 0 {
			return fmt.Errorf("expected a script")
		}
		script, args = args[0], args[1:]
	}
	edits, err := parseEdits(script)
	if err != nil {
		return err
	}

	if opts['i'] == "" {
		return c.each(args, func(_ string, r io.Reader) error { return edit(r, c.out, edits, opts['n'] != "") })
	}
	for _, name := range args {
		data, err := os.ReadFile(c.path(name))
		if err != nil {
			return err
		}
		var out strings.Builder
		if err := edit(strings.NewReader(string(data)), &out, edits, opts['n'] != ""); err != nil {
			return err
		}
		if err := os.WriteFile(c.path(name), []byte(out.String()), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// address says where an edit begins or ends.
type address struct {
	line    int
	last    bool
	pattern *regexp.Regexp
}

func (a *address) matches(line string, number int, last bool) bool {
	return a.line == number && number > 0 || a.last && last || a.pattern != nil && a.pattern.MatchString(line)
}

// lineEdit is one command in a script.
type lineEdit struct {
	from, to    *address
	inside, not bool
	name        byte
	pattern     *regexp.Regexp
	replacement string
	global, p   bool
}

func (e *lineEdit) applies(line string, number int, last bool) bool {
	switch {
	case e.from == nil:
		return true
	case e.to == nil:
		return e.from.matches(line, number, last) != e.not
	case e.inside:
		e.inside = !e.to.matches(line, number, last) && (e.to.line == 0 || number < e.to.line)
		return !e.not
	case e.from.matches(line, number, last):
		e.inside = e.to.line == 0 || number < e.to.line
		return !e.not
	}
	return e.not
}

func edit(r io.Reader, w io.Writer, edits []*lineEdit, quiet bool) error {
	scanner := scan(r)
	more := scanner.Scan()
	for number := 1; more; number++ {
		line := scanner.Text()
		more = scanner.Scan()
		deleted, quit := false, false
		for _, e := range edits {
			if deleted || quit || !e.applies(line, number, !more) {
				continue
			}
			print := e.name == 'p'
			switch e.name {
			case 'd':
				deleted = true
			case 'q':
				quit = true
			case 's':
				changed := e.substitute(line)
				print = e.p && changed != line
				line = changed
			}
			if print {
				if _, err := io.WriteString(w, line+"\n"); err != nil {
					return err
				}
			}
		}
		if !deleted && !quiet {
			if _, err := io.WriteString(w, line+"\n"); err != nil {
				return err
			}
		}
		if quit {
			return nil
		}
	}
	return scanner.Err()
}

func (e *lineEdit) substitute(line string) string {
	if e.global {
		return e.pattern.ReplaceAllString(line, e.replacement)
	}
	at := e.pattern.FindStringSubmatchIndex(line)
	if at == nil {
		return line
	}
	return line[:at[0]] + string(e.pattern.ExpandString(nil, e.replacement, line, at)) + line[at[1]:]
}

// parseEdits parses a script, which consists of commands separated by line feeds or
// semicolons.
func parseEdits(script string) (edits []*lineEdit, err error) {
	for {
		if script = strings.TrimLeft(script, " \t\n;"); script == "" {
			return edits, nil
		}
		e := &lineEdit{}
		if e.from, script, err = parseAddress(script); err != nil {
			return nil, err
		}
		if e.from != nil && strings.HasPrefix(script, ",") {
			if e.to, script, err = parseAddress(script[1:]); err != nil {
				return nil, err
			}
			if e.to == nil {
				return nil, fmt.Errorf("an address is missing after the comma")
			}
		}
		if script = strings.TrimLeft(script, " "); strings.HasPrefix(script, "!") && e.from != nil {
			e.not, script = true, script[1:]
		}
		if script == "" {
			return nil, fmt.Errorf("a command is missing after an address")
		}
		e.name, script = script[0], script[1:]
		switch e.name {
		case 'd', 'p', 'q':
		case 's':
			if script, err = e.parseSubstitution(script); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("command %q is not supported: there are s, d, p and q", string(e.name))
		}
		if rest := strings.TrimLeft(script, " "); rest != "" && rest[0] != ';' && rest[0] != '\n' {
			return nil, fmt.Errorf("unexpected %q after a command", rest)
		}
		edits = append(edits, e)
	}
}

func parseAddress(script string) (*address, string, error) {
	switch {
	case script == "":
		return nil, "", nil
	case script[0] == '$':
		return &address{last: true}, script[1:], nil
	case script[0] == '/':
		text, rest, ok := delimited(script[1:], '/')
		if !ok {
			return nil, "", fmt.Errorf("an address has no end")
		}
		pattern, err := regexp.Compile(text)
		return &address{pattern: pattern}, rest, err
	}
	end := 0
	for end < len(script) && script[end] >= '0' && script[end] <= '9' {
		end++
	}
	if end == 0 {
		return nil, script, nil
	}
	n, err := strconv.Atoi(script[:end])
	return &address{line: n}, script[end:], err
}

var backReference = regexp.MustCompile(`\\([0-9])`)

func (e *lineEdit) parseSubstitution(script string) (string, error) {
	if script == "" {
		return "", fmt.Errorf("s: expected s/PATTERN/REPLACEMENT/")
	}
	end := script[0]
	text, rest, ok := delimited(script[1:], end)
	if !ok {
		return "", fmt.Errorf("s: the pattern has no end")
	}
	replacement, rest, ok := delimited(rest, end)
	if !ok {
		return "", fmt.Errorf("s: the replacement has no end")
	}
	flags := ""
	for rest != "" && strings.IndexByte("gpiI", rest[0]) >= 0 {
		flags, rest = flags+rest[:1], rest[1:]
	}
	e.global, e.p = strings.Contains(flags, "g"), strings.Contains(flags, "p")
	if strings.ContainsAny(flags, "iI") {
		text = "(?i)" + text
	}

	// & is the match and \1 a group; a dollar is only a dollar.
	replacement = strings.ReplaceAll(replacement, "$", "$$")
	replacement = strings.ReplaceAll(replacement, `\&`, "\x00")
	replacement = strings.ReplaceAll(replacement, "&", "${0}")
	replacement = strings.ReplaceAll(replacement, "\x00", "&")
	replacement = backReference.ReplaceAllString(replacement, "$${$1}")
	e.replacement = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(replacement)
	var err error
	e.pattern, err = regexp.Compile(text)
	return rest, err
}

// delimited returns the text before a delimiter, and the rest. A backslash makes the
// delimiter an ordinary character.
func delimited(script string, end byte) (text, rest string, ok bool) {
	var out strings.Builder
	for i := 0; i < len(script); i++ {
		switch {
		case script[i] == end:
			return out.String(), script[i+1:], true
		case script[i] == '\\' && i+1 < len(script):
			i++
			if script[i] != end {
				out.WriteByte('\\')
			}
		}
		out.WriteByte(script[i])
	}
	return "", "", false
}
