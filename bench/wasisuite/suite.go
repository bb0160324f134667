package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
)

// test is a test of the suite. The other fields are those of its file in JSON.
type test struct {
	name string
	file string // its module

	Args   []string          `json:"args"`
	Env    map[string]string `json:"env"`
	Root   string            `json:"root"` // the folder that it sees as /; empty: none
	Exit   int64             `json:"exit_code"`
	Stdout *string           `json:"stdout"` // nil: any
}

// find returns the tests of a language.
func find(suite, language string) (tests []test, err error) {
	files, err := filepath.Glob(filepath.Join(suite, "tests", language, "testsuite", "wasm32-wasip1", "*.wasm"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no tests in %s: %s has no compiled tests", language, suite)
	}
	if err != nil {
		return nil, err
	}

	for _, file := range files {
		stem := strings.TrimSuffix(file, ".wasm")
		t := test{name: filepath.Base(stem), file: file, Env: map[string]string{}}
		data, err := os.ReadFile(stem + ".json")
		switch {
		case errors.Is(err, fs.ErrNotExist): // the defaults
		case err != nil:
			return nil, err
		default:
			if err := json.Unmarshal(data, &t); err != nil {
				return nil, fmt.Errorf("%s.json: %w", stem, err)
			}
		}
		tests = append(tests, t)
	}
	return tests, nil
}

// runAll runs tests, and says of those that have failed why.
func runAll(ctx context.Context, tests []test) (failed map[string]string, err error) {
	h, err := host.New(ctx, host.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close(context.Background()) }() // nothing runs

	failed = map[string]string{}
	for _, t := range tests {
		why, err := t.run(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		if why != "" {
			failed[t.name] = why
		}
	}
	return failed, nil
}

// run runs a test as a tool, in a folder of its own.
func (t test) run(ctx context.Context, h *host.Host) (failure string, err error) {
	dir, err := os.MkdirTemp("", "wasisuite")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	grant, err := t.write(dir)
	if err != nil {
		return "", err
	}
	registry, err := plugins.Open(ctx, h, plugins.Config{
		Folders: []plugins.Folder{plugins.Dir(filepath.Join(dir, "plugins"))},
		Grants:  map[string]plugins.Grant{"test": grant},
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = registry.Close(context.Background()) }()
	for _, p := range registry.Problems() {
		return p.String(), nil
	}

	tool, err := registry.Lookup("test_run")
	if err != nil {
		return "", err
	}
	var stderr strings.Builder
	result, err := tool.Call(ctx, host.Call{Observers: host.Observers{Stderr: &stderr}})
	if err != nil { // such as a crash
		return fmt.Sprintf("%v: %s", err, strings.TrimSpace(stderr.String())), ctx.Err()
	}
	return t.judge(result), nil
}

// write makes the folder of a test: its module, its manifest, and a copy of the folder that it
// sees. It returns the grant.
func (t test) write(dir string) (grant plugins.Grant, err error) {
	wasm, err := os.ReadFile(t.file)
	if err != nil {
		return grant, err
	}
	sidecar, err := t.sidecar()
	if err != nil {
		return grant, err
	}
	folder := filepath.Join(dir, "plugins")
	err = errors.Join(
		os.Mkdir(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "test.wasm"), wasm, 0o600),
		os.WriteFile(filepath.Join(folder, "test.toolhost.json"), sidecar, 0o600),
	)
	grant.Clock, grant.Random = true, true
	if t.Root != "" && err == nil {
		root := filepath.Join(dir, "root")
		err = os.CopyFS(root, os.DirFS(filepath.Join(filepath.Dir(t.file), t.Root)))
		grant.Files = []host.Mount{{Dir: root, Path: "/", Mode: abi.FileWrite}}
	}
	return grant, err
}

// sidecar is the manifest of a test.
func (t test) sidecar() ([]byte, error) {
	words := make([]string, len(t.Args))
	for i, word := range t.Args {
		words[i] = strings.NewReplacer("{", "{{", "}", "}}").Replace(word)
	}
	manifest := map[string]any{
		"abi": abi.Version, "name": "test", "version": "1.0.0", "description": "A test.",
		"tools": []any{map[string]any{
			"name": "run", "description": "Runs the test.",
			"input_schema": map[string]any{"type": "object"},
			"command": map[string]any{
				"args": words, "env": t.Env, "stdin": "", "success": []int64{t.Exit}, "output": "text",
			},
		}},
	}
	if t.Root != "" {
		manifest["needs"] = map[string]any{"files": []any{map[string]any{"path": "/", "mode": "write"}}}
	}
	return json.Marshal(manifest)
}

// judge says why a result is not what the test expects. It is empty if it is.
func (t test) judge(r abi.Result) string {
	if !r.IsSuccess() {
		return r.Error
	}
	var stdout string
	if err := json.Unmarshal(r.Value, &stdout); err != nil {
		return err.Error()
	}
	if t.Stdout != nil && stdout != *t.Stdout {
		return fmt.Sprintf("expected %q on stdout, got %q", *t.Stdout, stdout)
	}
	return ""
}
