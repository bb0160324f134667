package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/toolhost/toolhost/examples/tools/shell/internal/interp"
)

// ls lists names; with -l, also types, sizes and times.
func ls(c *command) error {
	opts, names, err := c.options("1alRd")
	if err != nil {
		return err
	}
	several := len(names) > 1 || opts['R'] != ""
	if len(names) == 0 {
		names = []string{"."}
	}

	for _, name := range names {
		info, err := os.Stat(c.path(name))
		if err != nil && !strings.HasSuffix(name, "/") {
			info, err = os.Lstat(c.path(name)) // a link that leads nowhere
		}
		if err != nil {
			return err
		}
		if !info.IsDir() || opts['d'] != "" {
			if err := c.entry(name, info, opts); err != nil {
				return err
			}
			continue
		}
		if err := c.list(name, several, opts); err != nil {
			return err
		}
	}
	return nil
}

func (c *command) list(name string, header bool, opts map[byte]string) error {
	entries, err := os.ReadDir(c.path(name))
	if err != nil {
		return err
	}
	if header {
		if err := c.print(name + ":"); err != nil {
			return err
		}
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name()[0] == '.' && opts['a'] == "" {
			continue // gone, or hidden
		}
		if err := c.entry(e.Name(), info, opts); err != nil {
			return err
		}
	}
	if opts['R'] == "" {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && (e.Name()[0] != '.' || opts['a'] != "") {
			if err := c.list(filepath.Join(name, e.Name()), true, opts); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *command) entry(name string, info fs.FileInfo, opts map[byte]string) error {
	if opts['l'] == "" {
		return c.print(name)
	}
	return c.print(fmt.Sprintf("%s %10d %s %s", info.Mode(), info.Size(), info.ModTime().UTC().Format("2006-01-02 15:04"), name))
}

// find lists the files below folders. Options: -name, -iname, -type, -maxdepth, -not,
// -delete, -print0.
func find(c *command) error {
	args := c.args[1:]
	var tops []string
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") && args[0] != "!" {
		tops, args = append(tops, args[0]), args[1:]
	}
	if len(tops) == 0 {
		tops = []string{"."}
	}

	depth, remove, end, negated := 1<<30, false, "\n", false
	var tests []func(name string, e fs.DirEntry) bool
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch word {
		case "-not", "!":
			negated = true
			continue
		case "-delete":
			remove = true
			continue
		case "-print":
			continue
		case "-print0":
			end = "\x00"
			continue
		case "-name", "-iname", "-type", "-maxdepth":
		default:
			return fmt.Errorf("%s is not supported", word)
		}
		if len(args) == 0 {
			return fmt.Errorf("%s needs a value", word)
		}
		value, not := args[0], negated
		args, negated = args[1:], false
		switch word {
		case "-maxdepth":
			if _, err := fmt.Sscan(value, &depth); err != nil {
				return fmt.Errorf("-maxdepth needs a number")
			}
		case "-type":
			tests = append(tests, func(_ string, e fs.DirEntry) bool {
				return not != (value == "d" && e.IsDir() || value == "f" && e.Type().IsRegular() || value == "l" && e.Type()&fs.ModeSymlink != 0)
			})
		default:
			fold := func(s string) string { return s }
			if word == "-iname" {
				fold = strings.ToLower
			}
			tests = append(tests, func(name string, _ fs.DirEntry) bool {
				match, err := filepath.Match(fold(value), fold(filepath.Base(name)))
				return not != (match && err == nil)
			})
		}
	}

	var doomed []string
	for _, top := range tops {
		err := filepath.WalkDir(c.path(top), func(full string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(c.path(top), full)
			if err != nil {
				return err
			}
			name, level := top, 0
			if rel != "." {
				name, level = strings.TrimSuffix(top, "/")+"/"+rel, 1+strings.Count(rel, "/")
			}
			for _, test := range tests {
				if !test(name, e) {
					return below(e, level, depth)
				}
			}
			if level > depth {
				return below(e, level, depth)
			}
			if remove {
				doomed = append(doomed, full)
			} else if _, err := io.WriteString(c.out, name+end); err != nil {
				return err
			}
			return below(e, level, depth)
		})
		if err != nil {
			return err
		}
	}
	for i := len(doomed) - 1; i >= 0; i-- { // what is in a folder before the folder
		if err := os.Remove(doomed[i]); err != nil {
			return err
		}
	}
	return nil
}

// below decides whether to enter a folder at the given level.
func below(e fs.DirEntry, level, depth int) error {
	if e.IsDir() && level >= depth {
		return fs.SkipDir
	}
	return nil
}

// grep prints the lines that match a regular expression, which is in RE2 syntax.
func grep(c *command) error {
	opts, args, err := c.options("EFinvclrRhHwqoe:")
	if err != nil {
		return err
	}
	expr, given := opts['e']
	if !given {
		if len(args) == 0 {
			return fmt.Errorf("expected a pattern")
		}
		expr, args = args[0], args[1:]
	}
	if opts['F'] != "" {
		expr = regexp.QuoteMeta(expr)
	}
	if opts['w'] != "" {
		expr = `\b(?:` + expr + `)\b`
	}
	if opts['i'] != "" {
		expr = "(?i)" + expr
	}
	pattern, err := regexp.Compile(expr)
	if err != nil {
		return err
	}

	files := args
	if recursive := opts['r'] != "" || opts['R'] != ""; recursive {
		if files, err = c.below(args); err != nil {
			return err
		}
		if len(files) == 0 {
			return interp.ExitStatus(1)
		}
	}
	withName := (len(files) > 1 || opts['H'] != "" || opts['r'] != "" || opts['R'] != "") && opts['h'] == ""
	found := false
	err = c.each(files, func(name string, r io.Reader) error {
		count, number, scanner := 0, 0, scan(r)
		for scanner.Scan() {
			line := scanner.Text()
			number++
			if pattern.MatchString(line) == (opts['v'] != "") {
				continue
			}
			found = true
			count++
			if opts['q'] != "" || opts['l'] != "" {
				break
			}
			if opts['c'] != "" {
				continue
			}
			prefix := ""
			if withName {
				prefix = name + ":"
			}
			if opts['n'] != "" {
				prefix += fmt.Sprintf("%d:", number)
			}
			texts := []string{line}
			if opts['o'] != "" && opts['v'] == "" {
				texts = pattern.FindAllString(line, -1)
			}
			for _, text := range texts {
				if err := c.print(prefix + text); err != nil {
					return err
				}
			}
		}
		switch {
		case opts['q'] != "":
			return nil
		case opts['l'] != "" && count > 0:
			return c.print(name)
		case opts['c'] != "" && withName:
			return c.print(fmt.Sprintf("%s:%d", name, count))
		case opts['c'] != "":
			return c.print(fmt.Sprint(count))
		}
		return scanner.Err()
	})
	if err == nil && !found {
		return interp.ExitStatus(1)
	}
	return err
}

// below returns the files below folders.
func (c *command) below(tops []string) (files []string, _ error) {
	if len(tops) == 0 {
		tops = []string{"."}
	}
	for _, top := range tops {
		err := filepath.WalkDir(c.path(top), func(full string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(c.path(top), full)
			files = append(files, filepath.Join(top, rel))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
