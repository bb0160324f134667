// Plugin regex searches and replaces text with regular expressions in a granted folder.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest"
)

// maxShown limits how much is shown of a match and of the lines around it, in bytes.
const maxShown = 500

type tools struct{ folder folder.Folder }

type where struct {
	Pattern    string `json:"pattern" desc:"Regular expression in the syntax of RE2: without look-around and back-references. ^ and $ are the ends of lines; a dot matches line feeds after (?s)" min:"1" max:"1000"`
	Path       string `json:"path" desc:"File or folder" default:"."`
	Glob       string `json:"glob,omitempty" desc:"Only files whose names match, such as *.go"`
	IgnoreCase bool   `json:"ignore_case,omitempty" desc:"Upper and lower case are the same"`
	Hidden     bool   `json:"hidden,omitempty" desc:"Look into files and folders whose names begin with a dot too"`
}

func (w where) compile() (*regexp.Regexp, error) {
	flags := "(?m)"
	if w.IgnoreCase {
		flags = "(?mi)"
	}
	if _, err := path.Match(w.Glob, ""); err != nil {
		return nil, fmt.Errorf("invalid glob %q: it has an open bracket or a backslash at its end", w.Glob)
	}
	return regexp.Compile(flags + w.Pattern)
}

// walk calls f with each text to be searched that has at most [folder.MaxText] bytes,
// until f returns false. It counts the files that are not such texts.
func (t tools) walk(c *guest.Call, in where, f func(root *os.Root, name, text string) (bool, error)) (skipped int, _ error) {
	files := 0
	return skipped, t.folder.In(in.Path, func(root *os.Root, top string) error {
		return fs.WalkDir(root.FS(), top, func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case name != top && !in.Hidden && strings.HasPrefix(e.Name(), "."):
				if e.IsDir() {
					return fs.SkipDir
				}
				return nil
			case !e.Type().IsRegular():
				return nil
			}
			if match, _ := path.Match(in.Glob, e.Name()); in.Glob != "" && !match {
				return nil
			}
			files++
			if err := c.Progress(float64(files), -1, name); err != nil {
				return err
			}
			data, err := folder.Load(root, name, folder.MaxText)
			if err != nil || !utf8.Valid(data) {
				skipped++
				return nil
			}
			more, err := f(root, name, string(data))
			if err == nil && !more {
				return fs.SkipAll
			}
			return err
		})
	})
}

type searchArgs struct {
	where
	Limit int `json:"limit" desc:"Matches to return at most" min:"1" max:"500" default:"100"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line" desc:"In which the match begins"`
	Text string `json:"text" desc:"The line, or the lines, of the match; a part of them if they are long"`
}

type searchResult struct {
	Matches []match `json:"matches"`
	More    bool    `json:"more" desc:"Whether the limit has cut the list"`
	Skipped int     `json:"skipped" desc:"Files that are not texts, or larger than 4 MiB"`
}

func (t tools) search(c *guest.Call, in searchArgs) (searchResult, error) {
	out := searchResult{Matches: []match{}}
	pattern, err := in.compile()
	if err != nil {
		return out, err
	}
	skipped, err := t.walk(c, in.where, func(_ *os.Root, name, text string) (bool, error) {
		line, counted := 1, 0
		found := pattern.FindAllStringIndex(text, in.Limit-len(out.Matches)+1)
		for _, at := range found {
			if len(out.Matches) == in.Limit {
				out.More = true
				return false, nil
			}
			line += strings.Count(text[counted:at[0]], "\n")
			counted = at[0]
			out.Matches = append(out.Matches, match{name, line, show(text, at[0], at[1])})
		}
		return true, nil
	})
	out.Skipped = skipped
	return out, err
}

// show returns the lines that contain a match, shortened if necessary.
func show(text string, from, to int) string {
	start := strings.LastIndexByte(text[:from], '\n') + 1
	end := len(text)
	if i := strings.IndexByte(text[to:], '\n'); i >= 0 {
		end = to + i
	}
	if from < to && text[to-1] == '\n' { // the line feed is the end of the match
		end = to - 1
	}
	if start = max(start, from-maxShown/4); end-start > maxShown {
		end = start + maxShown
	}
	return strings.ToValidUTF8(text[start:end], "")
}

type replaceArgs struct {
	where
	Replacement string `json:"replacement" desc:"Text for each match; $1 or ${name} stands for a group, $$ for a dollar"`
	Literal     bool   `json:"literal,omitempty" desc:"The replacement has no groups: take it as it is"`
	DryRun      bool   `json:"dry_run,omitempty" desc:"Only count, and change nothing"`
}

type replaced struct {
	Path  string `json:"path"`
	Count int    `json:"count"`
}

type replaceResult struct {
	Files   []replaced `json:"files" desc:"The first 500 files that are changed"`
	Changed int        `json:"changed" desc:"All files that are changed"`
	Count   int        `json:"count" desc:"All replacements"`
	Skipped int        `json:"skipped" desc:"Files that are not texts, or larger than 4 MiB"`
}

func (t tools) replace(c *guest.Call, in replaceArgs) (replaceResult, error) {
	out := replaceResult{Files: []replaced{}}
	pattern, err := in.compile()
	if err != nil {
		return out, err
	}
	skipped, err := t.walk(c, in.where, func(root *os.Root, name, text string) (bool, error) {
		changed, count, err := in.apply(pattern, text)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		if changed == text {
			return true, nil
		}
		out.Changed++
		out.Count += count
		if len(out.Files) < 500 {
			out.Files = append(out.Files, replaced{name, count})
		}
		if in.DryRun {
			return true, nil
		}
		return true, root.WriteFile(name, []byte(changed), 0o666)
	})
	out.Skipped = skipped
	return out, err
}

// apply replaces the matches in a text. The result has the same size limit as the text.
func (in replaceArgs) apply(pattern *regexp.Regexp, text string) (string, int, error) {
	var out []byte
	done, count := 0, 0
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		out = append(out, text[done:at[0]]...)
		if in.Literal {
			out = append(out, in.Replacement...)
		} else {
			out = pattern.ExpandString(out, in.Replacement, text, at)
		}
		done = at[1]
		count++
		if len(out) > folder.MaxText {
			return "", 0, fmt.Errorf("the result would have more than %d bytes", folder.MaxText)
		}
	}
	if out = append(out, text[done:]...); len(out) > folder.MaxText {
		return "", 0, fmt.Errorf("the result would have more than %d bytes", folder.MaxText)
	}
	return string(out), count, nil
}

func newPlugin(work folder.Folder) *guest.Plugin {
	t := tools{work}
	closed := false
	return &guest.Plugin{
		Name: "regex", Version: "1.0.0", Description: "Searches and replaces by regular expressions in a folder.", License: "Apache-2.0",
		Needs: guest.Needs{Files: []guest.FileNeed{{Path: folder.Path, Mode: "write"}}},
		Tools: []guest.Tool{
			{
				Name: "search", Description: "Finds what matches a regular expression in a file, or in all text files below a folder.",
				Handler: guest.Handle(t.search), Hints: guest.Hints{Readonly: true, Idempotent: true, OpenWorld: &closed},
				Examples: []guest.Example{
					{Name: "nothing", Args: searchArgs{where: where{Pattern: "no such text", Path: "."}, Limit: 10}, Result: searchResult{Matches: []match{}}},
					{Name: "a mistake", Args: searchArgs{where: where{Pattern: "(", Path: "."}, Limit: 10}, Error: "missing closing )"},
					{Name: "outside", Args: searchArgs{where: where{Pattern: "a", Path: "../a"}, Limit: 10}, Error: "leads out of the folder"},
				},
			},
			{
				Name: "replace", Description: "Replaces what matches a regular expression in a file, or in all text files below a folder. See what it would do with dry_run first.",
				Handler: guest.Handle(t.replace), Hints: guest.Hints{OpenWorld: &closed, Concurrency: "serial"},
				Examples: []guest.Example{
					{Name: "nothing", Args: replaceArgs{where: where{Pattern: "no such text", Path: "."}, Replacement: "x"}, Result: replaceResult{Files: []replaced{}}},
				},
			},
		},
	}
}

func init() { guest.Serve(newPlugin(folder.Path)) }

func main() {}
