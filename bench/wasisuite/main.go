// Command wasisuite runs the tests of wasi-testsuite for WASI preview 1, each as a tool: a
// program with a sidecar manifest, in the sandbox, metered. It fails if the tests that fail are
// not those of failures.txt.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/docs"
	"github.com/toolhost/toolhost/bench/internal/known"
	"github.com/toolhost/toolhost/host"
)

// languages are the folders of tests that are run.
var languages = []string{"assemblyscript", "c", "rust"}

//go:embed failures.txt
var failures string

func main() {
	host.CompilerMain()
	folder := flag.String("suite", "", "`folder` of wasi-testsuite, with the compiled tests")
	file := flag.String("docs", "", "`page` whose table to replace")
	flag.Parse()
	if *folder == "" {
		fmt.Fprintln(os.Stderr, "wasisuite: -suite is missing: see README.md for how to get it")
		os.Exit(2)
	}

	table, err := run(context.Background(), *folder)
	if err == nil && *file != "" {
		err = docs.Replace(*file, "wasisuite", table)
	}
	fmt.Print(table)
	if err != nil {
		fmt.Fprintln(os.Stderr, "wasisuite:", err)
		os.Exit(1)
	}
}

var errDiffers = errors.New("the failures are not those that are known")

// run runs all tests, and compares the failures with the list of those that are known.
func run(ctx context.Context, folder string) (table string, err error) {
	expected, err := known.Parse(failures)
	if err != nil {
		return "", fmt.Errorf("failures.txt: %w", err)
	}

	ran, failed := map[string]bool{}, map[string]string{}
	var rows strings.Builder
	for _, language := range languages {
		tests, err := find(folder, language)
		if err != nil {
			return "", err
		}
		broken, err := runAll(ctx, tests)
		if err != nil {
			return "", err
		}
		for _, t := range tests {
			ran[t.name] = true
		}
		maps.Copy(failed, broken)
		fmt.Fprintf(&rows, "| %s | %d | %d | %s |\n", language, len(tests), len(tests)-len(broken), names(broken))
	}
	table = fmt.Sprintf("| tests in | run | pass | fail |\n|---|--:|--:|---|\n%s| all | %d | %d | |\n",
		rows.String(), len(ran), len(ran)-len(failed)) + reasons(expected, failed)

	unknown, gone := expected.Compare(slices.Collect(maps.Keys(failed)), func(name string) bool { return ran[name] })
	for _, name := range unknown {
		fmt.Fprintf(os.Stderr, "not known to fail: %s: %s\n", name, failed[name])
	}
	for _, name := range gone {
		fmt.Fprintf(os.Stderr, "known to fail, and does not: %s\n", name)
	}
	if len(unknown)+len(gone) > 0 {
		return table, errDiffers
	}
	return table, nil
}

// names lists the tests that have failed.
func names(failed map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(failed)), ", ")
}

// reasons is a table of the known failures and why they fail.
func reasons(expected known.Failures, failed map[string]string) string {
	why, _ := expected.Reasons(slices.Collect(maps.Keys(failed)))
	if len(why) == 0 {
		return ""
	}
	var rows strings.Builder
	for _, reason := range why {
		of := maps.Clone(failed)
		maps.DeleteFunc(of, func(name, _ string) bool { return expected[name] != reason })
		fmt.Fprintf(&rows, "| %s | %s |\n", names(of), reason)
	}
	return "\n| fails | why |\n|---|---|\n" + rows.String()
}
