// Command turns counts what a model reads and writes to do tasks with tools: in turns of
// tool calls, and with scripts. No model takes part: see [task].
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/docs"
)

func main() {
	file := flag.String("docs", "", "page whose tables to replace")
	flag.Parse()
	table, err := measure(context.Background())
	if err == nil && *file != "" {
		err = docs.Replace(*file, "turns", table)
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

// measured is what tasks have taken, both ways.
type measured struct {
	rows, twenty   []row
	plain, scripts *way
}

// doAll does all tasks both ways.
func doAll(ctx context.Context, cacheDir string) (m measured, err error) {
	for _, w := range []**way{&m.plain, &m.scripts} {
		if *w, err = open(ctx, w == &m.scripts, cacheDir); err != nil {
			return m, err
		}
		defer (*w).close()
	}

	if m.rows, err = m.do(tasks()); err == nil {
		m.twenty, err = m.do(twentyTasks())
	}
	return m, err
}

func (m measured) do(tasks []task) (rows []row, err error) {
	for _, t := range tasks {
		r := row{name: t.name}
		if r.turns, err = m.plain.do(t); err != nil {
			return nil, fmt.Errorf("in turns: %w", err)
		}
		if r.script, err = m.scripts.do(t); err != nil {
			return nil, fmt.Errorf("by script: %w", err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func measure(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "turns")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	m, err := doAll(ctx, dir)
	if err != nil {
		return "", err
	}
	return m.tables(), nil
}

func (w *way) defined() (n int) {
	for _, tokens := range w.definitions {
		n += tokens
	}
	return n
}

// tables are the tables in Markdown: of the tasks, those first that gain most from a
// script, and of the twenty calls.
func (m measured) tables() string {
	rows := slices.Clone(m.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.gain(), a.gain()) })
	all := row{name: "all"}
	for _, r := range rows {
		all.turns.add(r.turns.usage)
		all.script.add(r.script.usage)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "Definitions: %d tools have %s tokens as JSON; `exec`, `check_background` and `tools_search` have %s.\n\n", len(m.plain.definitions), thousands(m.plain.defined()), thousands(m.scripts.defined()))
	write(&b, "task", append(rows, all))
	b.WriteString("\nTwenty calls of a tool with small results:\n\n")
	write(&b, "twenty calls", m.twenty)
	return b.String()
}

func write(b *strings.Builder, what string, rows []row) {
	fmt.Fprintf(b, "| %s | turns | calls | read | new | short list | written | price |\n|---|--:|--:|--:|--:|--:|--:|--:|\n", what)
	for _, r := range rows {
		t, s := r.turns.usage, r.script.usage
		both := func(t, s int) string { return thousands(t) + " / " + thousands(s) }
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %.2f |\n", r.name,
			both(t.turns, s.turns), both(t.calls, s.calls), both(t.read, s.read), both(t.fresh, s.fresh), both(t.needed, s.read), both(t.written, s.written), s.price()/t.price())
	}
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
