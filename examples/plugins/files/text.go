package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/toolhost/toolhost/guest"
)

type readArgs struct {
	Path   string `json:"path" desc:"File in the workspace" min:"1"`
	Offset int    `json:"offset" desc:"Lines to skip" min:"0" default:"0"`
	Limit  int    `json:"limit,omitempty" desc:"Lines to read at most; all if left out" min:"1"`
}

func (w workspace) read(_ *guest.Call, in readArgs) (text string, _ error) {
	err := w.in(in.Path, func(root *os.Root, name string) (err error) {
		text, err = load(root, name)
		return err
	})
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1] // after the last line feed
	}
	lines = lines[min(in.Offset, len(lines)):]
	more := 0
	if in.Limit > 0 && len(lines) > in.Limit {
		lines, more = lines[:in.Limit], len(lines)-in.Limit
	}
	text = strings.Join(lines, "")
	if more > 0 {
		text += fmt.Sprintf("... (%d more lines)\n", more)
	}
	return text, err
}

type writeArgs struct {
	Path    string `json:"path" desc:"File in the workspace" min:"1"`
	Content string `json:"content" desc:"All that will be in the file"`
}

type writeResult struct {
	Bytes int `json:"bytes"`
}

func (w workspace) write(_ *guest.Call, in writeArgs) (writeResult, error) {
	return writeResult{len(in.Content)}, w.in(in.Path, func(root *os.Root, name string) error {
		if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
			return err
		}
		return root.WriteFile(name, []byte(in.Content), 0o666)
	})
}

type editArgs struct {
	Path string `json:"path" desc:"File in the workspace" min:"1"`
	Old  string `json:"old" desc:"Text to replace; give enough of it to be sure which occurrence is the first" min:"1"`
	New  string `json:"new" desc:"Text to put in its place"`
}

type editResult struct {
	Line int `json:"line" desc:"Line the replaced text starts in"`
	More int `json:"more" desc:"Occurrences that are left"`
}

func (w workspace) edit(_ *guest.Call, in editArgs) (out editResult, _ error) {
	err := w.in(in.Path, func(root *os.Root, name string) error {
		text, err := load(root, name)
		if err != nil {
			return err
		}
		before, after, ok := strings.Cut(text, in.Old)
		if !ok {
			return fmt.Errorf("%s: the old text is not in it", name)
		}
		out = editResult{Line: 1 + strings.Count(before, "\n"), More: strings.Count(after, in.Old)}
		return root.WriteFile(name, []byte(before+in.New+after), 0o666)
	})
	return out, err
}

type grepArgs struct {
	Pattern string `json:"pattern" desc:"Regular expression, in the syntax of RE2" min:"1"`
	Path    string `json:"path" desc:"File or folder in the workspace" default:"."`
	Limit   int    `json:"limit" desc:"Matches to return at most" min:"1" max:"1000" default:"100"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

type grepResult struct {
	Matches []match `json:"matches"`
	More    bool    `json:"more" desc:"Whether the limit has cut the list"`
}

func (w workspace) grep(c *guest.Call, in grepArgs) (grepResult, error) {
	out := grepResult{Matches: []match{}}
	pattern, err := regexp.Compile(in.Pattern)
	if err != nil {
		return out, err
	}
	files := 0
	err = w.in(in.Path, func(root *os.Root, name string) error {
		return fs.WalkDir(root.FS(), name, func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			files++
			if err := c.Progress(float64(files), -1, name); err != nil {
				return err
			}
			text, err := load(root, name)
			if err != nil {
				return nil // too large, or no text: not what a search by lines is for
			}
			if !out.add(name, text, pattern, in.Limit) {
				return fs.SkipAll
			}
			return nil
		})
	})
	return out, err
}

// add adds the matching lines of a file, and reports whether there is room for
// more.
func (r *grepResult) add(name, text string, pattern *regexp.Regexp, limit int) bool {
	line := 0
	for s := range strings.Lines(text) {
		line++
		s = strings.TrimRight(s, "\r\n")
		if !pattern.MatchString(s) {
			continue
		}
		if len(r.Matches) == limit {
			r.More = true
			return false
		}
		r.Matches = append(r.Matches, match{name, line, s})
	}
	return true
}
