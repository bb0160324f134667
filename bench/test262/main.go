// Command test262 runs tests of test262 in the sandbox: each as a call, in a clean instance,
// of a plugin on the JavaScript runtime of package js, metered. It fails if the tests that fail
// are not those of failures.txt.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/bench/internal/known"
)

// folders are the folders of test that are run unless the command line has some.
var folders = []string{
	"language/expressions", "language/statements",
	"built-ins/Array", "built-ins/JSON", "built-ins/Map", "built-ins/Promise", "built-ins/RegExp", "built-ins/Set", "built-ins/String",
}

//go:embed failures.txt
var failures string

func main() {
	folder := flag.String("suite", "", "`folder` of test262")
	flag.Parse()
	if *folder == "" {
		fmt.Fprintln(os.Stderr, "test262: -suite is missing: see README.md for how to get it")
		os.Exit(2)
	}

	names := flag.Args()
	if len(names) == 0 {
		names = folders
	}
	if err := run(context.Background(), *folder, names); err != nil {
		fmt.Fprintln(os.Stderr, "test262:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string, names []string) error {
	s, err := newSuite(ctx, folder)
	if err != nil {
		return err
	}
	defer s.close()

	return s.check(ctx, os.Stdout, names, failures)
}

var errDiffers = errors.New("the failures are not those that are known")

// check runs the tests of folders, prints what became of them, and compares the failures
// with the list of those that are known.
func (s *suite) check(ctx context.Context, out io.Writer, folders []string, list string) error {
	expected, err := known.Parse(list)
	if err != nil {
		return fmt.Errorf("failures.txt: %w", err)
	}

	ran := map[string]bool{}
	total := outcome{failed: map[string]string{}}
	for _, folder := range folders {
		names, err := s.tests(folder)
		if err != nil {
			return err
		}
		for _, name := range names {
			ran[name] = true
		}
		o, err := s.runAll(ctx, names)
		if err != nil {
			return err
		}
		o.print(out, folder)
		total.add(o)
	}
	total.print(out, "all")

	failed := slices.Collect(maps.Keys(total.failed))
	reasons, count := expected.Reasons(failed)
	for _, why := range reasons {
		fmt.Fprintf(out, "%6d fail: %s\n", count[why], why)
	}
	unknown, gone := expected.Compare(failed, func(name string) bool { return ran[name] })
	for _, name := range unknown {
		fmt.Fprintf(out, "not known to fail: %s\n\t%s\n", name, strings.ReplaceAll(total.failed[name], "\n", "\n\t"))
	}
	for _, name := range gone {
		fmt.Fprintf(out, "known to fail, and does not: %s\n", name)
	}
	if len(unknown)+len(gone) > 0 {
		return errDiffers
	}
	return nil
}

// runAll runs tests, as many at a time as there are processors.
func (s *suite) runAll(ctx context.Context, names []string) (all outcome, err error) {
	type done struct {
		name string
		outcome
		err error
	}
	todo, results := make(chan string), make(chan done)
	go func() {
		defer close(todo)
		for _, name := range names {
			todo <- name
		}
	}()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for name := range todo {
				o, err := s.run(ctx, name)
				results <- done{name, o, err}
			}
		})
	}
	go func() {
		workers.Wait()
		close(results)
	}()

	all.failed = map[string]string{}
	for d := range results {
		if d.err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", d.name, d.err))
			continue
		}
		all.add(d.outcome)
	}
	return all, err
}

func (o outcome) print(out io.Writer, name string) {
	fmt.Fprintf(out, "%-22s %6d run %6d passed %5d failed %4d skipped %10.0f M units %8s\n",
		name, o.run, o.passed, len(o.failed), o.skipped, float64(o.fuel)/1e6, o.took.Round(10*time.Millisecond))
}
