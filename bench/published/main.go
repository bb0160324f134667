// Command published downloads WebAssembly programs that others have published, by digest, and
// checks which run as tools and why the others are refused.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/bench/internal/command"
	"github.com/toolhost/toolhost/bench/internal/docs"
	"github.com/toolhost/toolhost/bench/internal/download"
)

//go:embed programs.yaml
var list []byte

// program is a program, and what is expected of it.
type program struct {
	Title         string `yaml:"title"`
	What          string `yaml:"what"` // it does
	download.File `yaml:",inline"`

	// Of a program that runs.
	Command map[string]any `yaml:"command"` // in its manifest
	Input   string         `yaml:"input"`   // of the call
	Makes   string         `yaml:"makes"`   // file in its folder; empty: it prints what is expected
	Expect  string         `yaml:"expect"`  // a part of what it prints or makes

	// Of one that is refused.
	Refused string `yaml:"refused"` // a part of the message
	Why     string `yaml:"why"`
}

func main() {
	file := flag.String("docs", "", "`page` whose table to replace")
	flag.Parse()

	table, err := run(context.Background())
	if err == nil && *file != "" {
		err = docs.Replace(*file, "published", table)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "published:", err)
		os.Exit(1)
	}
	fmt.Print(table)
}

func programs() (all []program, err error) {
	err = yaml.Unmarshal(list, &all)
	return all, err
}

func run(ctx context.Context) (string, error) {
	all, err := programs()
	if err != nil {
		return "", fmt.Errorf("programs.yaml: %w", err)
	}
	dir, err := os.MkdirTemp("", "published")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	toolhost := filepath.Join(dir, "toolhost")
	if err := command.Build(ctx, toolhost); err != nil {
		return "", err
	}

	var usages []abi.Usage
	var problems error
	for i, p := range all {
		fmt.Fprintln(os.Stderr, p.Title)
		u, err := p.check(ctx, toolhost, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", p.Title, err))
		}
		usages = append(usages, u)
	}
	return table(all, usages), problems
}

// check downloads the program into a folder and checks what is expected of it.
func (p program) check(ctx context.Context, toolhost, dir string) (u abi.Usage, err error) {
	plugins := filepath.Join(dir, "plugins")
	for _, name := range []string{plugins, filepath.Join(dir, "work")} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			return u, err
		}
	}
	wasm, err := p.Fetch(ctx, filepath.Join(dir, "package"))
	if err != nil {
		return u, err
	}
	if err := os.WriteFile(filepath.Join(plugins, "program.wasm"), wasm, 0o600); err != nil {
		return u, err
	}

	if p.Refused != "" {
		_, message, err := p.toolhost(ctx, toolhost, dir, "inspect", "plugins/program.wasm")
		switch {
		case err == nil:
			return u, fmt.Errorf("expected to be refused with %q, and is not", p.Refused)
		case !strings.Contains(message, p.Refused):
			return u, fmt.Errorf("expected to be refused with %q, got %w: %s", p.Refused, err, message)
		}
		return u, nil
	}
	return p.call(ctx, toolhost, dir)
}

// call calls the program as a tool, twice: the first call compiles it.
func (p program) call(ctx context.Context, toolhost, dir string) (u abi.Usage, err error) {
	files := map[string]string{
		"plugins/program.toolhost.yaml": p.manifest(),
		"toolhost.yaml":                 "plugins: [plugins]\ngrants:\n  program:\n    files: [{dir: work, path: /work, mode: write}]\n",
		"work/in.txt":                   "greeting\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o600); err != nil {
			return u, err
		}
	}
	args, err := json.Marshal(map[string]string{"input": p.Input})
	if err != nil {
		return u, err
	}

	for range 2 {
		out, message, err := p.toolhost(ctx, toolhost, dir, "call", "--config", "toolhost.yaml", "--json", "program_run", string(args))
		if err != nil {
			return u, fmt.Errorf("%w: %s%s", err, out, message)
		}
		var r abi.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			return u, err
		}
		u = r.Usage
		got := string(r.Value)
		if p.Makes != "" {
			made, err := os.ReadFile(filepath.Join(dir, "work", p.Makes))
			if err != nil {
				return u, err
			}
			got = string(made)
		}
		if !strings.Contains(strings.Join(strings.Fields(got), ""), p.Expect) {
			return u, fmt.Errorf("expected %q, got %.200q", p.Expect, got)
		}
	}
	return u, nil
}

// manifest is the sidecar of the program.
func (p program) manifest() string {
	command, _ := json.Marshal(p.Command) // from YAML: strings, numbers and lists
	return "abi: toolhost_v1\nname: program\nversion: 1.0.0\ndescription: A program.\ntools:\n  - name: run\n    description: Runs it.\n" +
		"    input_schema: {type: object, properties: {input: {type: string}}}\n    command: " + string(command) + "\n"
}

// toolhost runs a command of toolhost in a folder.
func (p program) toolhost(ctx context.Context, toolhost, dir string, args ...string) (out, message string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()

	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, toolhost, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TOOLHOST_DATA="+filepath.Join(dir, "data"))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}
