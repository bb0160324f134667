// Command turns counts what a model reads and writes to do tasks with tools: in turns of
// tool calls, and with scripts. No model takes part: see [task].
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	docs := flag.String("docs", "", "page whose table to replace")
	flag.Parse()
	table, err := measure(context.Background())
	if err == nil && *docs != "" {
		err = replace(*docs, table)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
	fmt.Print(table)
}

// row is a task, done both ways.
type row struct {
	name          string
	turns, script outcome
}

// gain is how much cheaper the script is.
func (r row) gain() float64 { return r.turns.price() / r.script.price() }

// doAll does all tasks both ways.
func doAll(ctx context.Context, cacheDir string) (rows []row, plain, scripts *way, err error) {
	for _, w := range []**way{&plain, &scripts} {
		if *w, err = open(ctx, w == &scripts, cacheDir); err != nil {
			return nil, nil, nil, err
		}
		defer (*w).close()
	}

	for _, t := range tasks() {
		r := row{name: t.name}
		if r.turns, err = plain.do(t); err != nil {
			return nil, nil, nil, fmt.Errorf("in turns: %w", err)
		}
		if r.script, err = scripts.do(t); err != nil {
			return nil, nil, nil, fmt.Errorf("by script: %w", err)
		}
		rows = append(rows, r)
	}
	return rows, plain, scripts, nil
}

func measure(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "turns")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	rows, plain, scripts, err := doAll(ctx, dir)
	if err != nil {
		return "", err
	}
	return tableOf(rows, plain, scripts), nil
}

func (w *way) defined() (n int) {
	for _, tokens := range w.definitions {
		n += tokens
	}
	return n
}

// tableOf is the table in Markdown: those tasks first that gain most from a script.
func tableOf(rows []row, plain, scripts *way) string {
	slices.SortStableFunc(rows, func(a, b row) int {
		if a.gain() > b.gain() {
			return -1
		}
		return 1
	})
	all := row{name: "all"}
	for _, r := range rows {
		all.turns.add(r.turns.usage)
		all.script.add(r.script.usage)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "Definitions: %d tools have %s tokens as JSON; `exec`, `check_background` and `tools_search` have %s.\n\n", len(plain.definitions), thousands(plain.defined()), thousands(scripts.defined()))
	b.WriteString("| task | turns | calls | read | new | short list | written | price |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range append(rows, all) {
		t, s := r.turns.usage, r.script.usage
		both := func(t, s int) string { return thousands(t) + " / " + thousands(s) }
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %.2f |\n", r.name,
			both(t.turns, s.turns), both(t.calls, s.calls), both(t.read, s.read), both(t.fresh, s.fresh), both(t.needed, s.read), both(t.written, s.written), s.price()/t.price())
	}
	return b.String()
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// The table of a page is between these.
const (
	begin = "<!-- bench/turns -->\n"
	end   = "<!-- bench/turns ends -->\n"
)

// replace puts a table into a page.
func replace(file, table string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s: expected %q and %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+begin+table+end+after), 0o644)
}
