// Command languages makes the plugin of toolhost new in each language that it knows, and
// measures what its author waits for and what its calls cost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/bench/internal/command"
	"github.com/toolhost/toolhost/bench/internal/docs"
	"github.com/toolhost/toolhost/host"
)

// language is a language of toolhost new.
type language struct {
	name, title string
	toolchain   string // what it is built with; empty: toolhost has all that it takes
	source      string // of a new project
}

var languages = []language{
	{"go", "Go", "Go", "main.go"},
	{"javascript", "JavaScript", "", "tool.js"},
	{"typescript", "TypeScript", "", "tool.ts"},
	{"python", "Python", "", "tool.py"},
	{"rust", "Rust", "Rust", "src/lib.rs"},
	{"c", "C", "clang or Zig", "tool.c"},
}

func main() {
	host.CompilerMain()
	file := flag.String("docs", "", "`page` whose table to replace")
	rounds := flag.Int("rounds", 15, "`number` of rounds in which the languages take turns")
	calls := flag.Int("calls", 300, "`number` of calls of each language in a round")
	flag.Parse()

	table, err := run(context.Background(), *rounds, *calls)
	if err == nil && *file != "" {
		err = docs.Replace(*file, "languages", table)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "languages:", err)
		os.Exit(1)
	}
	fmt.Print(table)
}

func run(ctx context.Context, rounds, calls int) (string, error) {
	dir, err := os.MkdirTemp("", "languages")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	toolhost := filepath.Join(dir, "toolhost")
	if err := command.Build(ctx, toolhost); err != nil {
		return "", err
	}

	var projects []*project
	for _, l := range languages {
		fmt.Fprintln(os.Stderr, l.title)
		p := &project{language: l, toolhost: toolhost, dir: filepath.Join(dir, l.name)}
		err := p.make(ctx)
		defer p.close()
		switch {
		case errors.Is(err, errNotBuilt) && l.toolchain != "":
			p.missing = err
		case err != nil:
			return "", fmt.Errorf("%s: %w", l.title, err)
		}
		projects = append(projects, p)
	}

	r, err := measure(ctx, projects, rounds, calls)
	if err != nil {
		return "", err
	}
	return table(projects, r), nil
}
