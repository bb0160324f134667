package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/u-root/u-root/pkg/core"
	"github.com/u-root/u-root/pkg/core/base64"
	"github.com/u-root/u-root/pkg/core/cat"
	"github.com/u-root/u-root/pkg/core/cp"
	"github.com/u-root/u-root/pkg/core/mkdir"
	"github.com/u-root/u-root/pkg/core/mv"
	"github.com/u-root/u-root/pkg/core/rm"
	"github.com/u-root/u-root/pkg/core/shasum"
	"github.com/u-root/u-root/pkg/core/touch"

	"github.com/toolhost/toolhost/examples/tools/shell/internal/interp"
)

// maxLine is the maximum length of a line that a command reads, in bytes.
const maxLine = 4 << 20

// command is a running command: its name and arguments, and its environment.
type command struct {
	ctx  context.Context
	dir  string
	args []string
	in   io.Reader
	out  io.Writer
	err  io.Writer
}

// commands holds the commands of this plugin and those of u-root, by name.
var commands map[string]func(*command) error

func init() { // not a literal: xargs refers to it
	commands = map[string]func(*command) error{
		"base64": uroot(base64.New), "cat": uroot(cat.New), "cp": uroot(cp.New), "mkdir": uroot(mkdir.New),
		"mv": uroot(mv.New), "rm": uroot(rm.New), "shasum": uroot(shasum.New), "touch": uroot(touch.New),

		"basename": basename, "cut": cut, "dirname": dirname, "find": find, "grep": grep, "head": head, "ls": ls, "sed": sed,
		"seq": seq, "sort": sorted, "tail": tail, "tee": tee, "tr": tr, "uniq": uniq, "wc": wc, "xargs": xargs,
	}
}

func names() string { return strings.Join(slices.Sorted(maps.Keys(commands)), ", ") }

func uroot(make func() core.Command) func(*command) error {
	return func(c *command) error {
		run := make()
		run.SetIO(c.in, c.out, c.err)
		run.SetWorkingDir(c.dir)
		run.SetLookupEnv(func(string) (string, bool) { return "", false })
		return run.RunContext(c.ctx, c.args[1:]...)
	}
}

// options parses flags as POSIX does. spec lists their letters; those followed by a colon
// take a value. It returns the remaining arguments.
func (c *command) options(spec string) (map[byte]string, []string, error) {
	found, args := map[byte]string{}, c.args[1:]
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		word := args[0][1:]
		args = args[1:]
		if word == "-" {
			break
		}
		for word != "" {
			letter := word[0]
			word = word[1:]
			i := strings.IndexByte(spec, letter)
			if i < 0 || letter == ':' {
				return nil, nil, fmt.Errorf("unknown option -%c", letter)
			}
			if i+1 == len(spec) || spec[i+1] != ':' {
				found[letter] = "true"
				continue
			}
			if word == "" {
				if len(args) == 0 {
					return nil, nil, fmt.Errorf("option -%c needs a value", letter)
				}
				word, args = args[0], args[1:]
			}
			found[letter], word = word, ""
		}
	}
	return found, args, nil
}

func (c *command) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.dir, name)
}

// each calls f with each file named in the arguments, or with stdin if there are none.
func (c *command) each(files []string, f func(name string, r io.Reader) error) error {
	if len(files) == 0 {
		return f("-", c.in)
	}
	for _, name := range files {
		if name == "-" {
			if err := f("-", c.in); err != nil {
				return err
			}
			continue
		}
		file, err := os.Open(c.path(name))
		if err != nil {
			return err
		}
		err = f(name, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// lines calls f with each line in the files, until f returns false.
func (c *command) lines(files []string, f func(line string) (bool, error)) error {
	return c.each(files, func(_ string, r io.Reader) error {
		scanner := scan(r)
		for scanner.Scan() {
			if more, err := f(scanner.Text()); err != nil || !more {
				return err
			}
		}
		return scanner.Err()
	})
}

func scan(r io.Reader) *bufio.Scanner {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	return scanner
}

func (c *command) print(line string) error {
	_, err := io.WriteString(c.out, line+"\n")
	return err
}

func basename(c *command) error {
	if len(c.args) < 2 {
		return fmt.Errorf("a path is missing")
	}
	name := path.Base(c.args[1])
	if len(c.args) > 2 && name != c.args[2] {
		name = strings.TrimSuffix(name, c.args[2])
	}
	return c.print(name)
}

func dirname(c *command) error {
	for _, name := range c.args[1:] {
		if err := c.print(path.Dir(name)); err != nil {
			return err
		}
	}
	return nil
}

func seq(c *command) error {
	numbers := []int{}
	for _, word := range c.args[1:] {
		n, err := strconv.Atoi(word)
		if err != nil {
			return fmt.Errorf("%q is not an integer", word)
		}
		numbers = append(numbers, n)
	}
	first, step, last := 1, 1, 0
	switch len(numbers) {
	case 1:
		last = numbers[0]
	case 2:
		first, last = numbers[0], numbers[1]
	case 3:
		first, step, last = numbers[0], numbers[1], numbers[2]
	}
	if len(numbers) == 0 || len(numbers) > 3 || step == 0 {
		return fmt.Errorf("expected [FIRST [STEP]] LAST")
	}
	for n := first; step > 0 && n <= last || step < 0 && n >= last; n += step {
		if err := c.print(strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return nil
}

func tee(c *command) error {
	opts, files, err := c.options("a")
	if err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if opts['a'] != "" {
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	to := []io.Writer{c.out}
	for _, name := range files {
		file, err := os.OpenFile(c.path(name), flags, 0o666)
		if err != nil {
			return err
		}
		defer file.Close()
		to = append(to, file)
	}
	_, err = io.Copy(io.MultiWriter(to...), c.in)
	return err
}

// xargs runs commands of this plugin. With -I, it replaces a word in the arguments, once
// for each line.
func xargs(c *command) error {
	opts, args, err := c.options("n:I:0r")
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return fmt.Errorf("expected a command")
	}
	data, err := io.ReadAll(io.LimitReader(c.in, maxLine))
	if err != nil {
		return err
	}
	words := strings.Fields(string(data))
	if opts['0'] != "" {
		words = strings.FieldsFunc(string(data), func(r rune) bool { return r == 0 })
	} else if opts['I'] != "" {
		words = strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	}

	size := max(len(words), 1)
	if opts['I'] != "" {
		size = 1
	} else if opts['n'] != "" {
		if size, err = strconv.Atoi(opts['n']); err != nil || size < 1 {
			return fmt.Errorf("-n: expected a number above 0")
		}
	}
	for part := range slices.Chunk(words, size) {
		full := append(slices.Clone(args), part...)
		if word := opts['I']; word != "" {
			full = full[:len(args)]
			for i := range full {
				full[i] = strings.ReplaceAll(full[i], word, part[0])
			}
		}
		if full[0] == "echo" {
			if err := c.print(strings.Join(full[1:], " ")); err != nil {
				return err
			}
			continue
		}
		run, ok := commands[full[0]]
		if !ok {
			fmt.Fprintf(c.err, "xargs: %s: command not found\n", full[0])
			return interp.ExitStatus(127)
		}
		if err := run(&command{ctx: c.ctx, dir: c.dir, args: full, in: strings.NewReader(""), out: c.out, err: c.err}); err != nil {
			return err
		}
	}
	return nil
}
