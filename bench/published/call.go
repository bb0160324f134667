package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// times are the processor times of whole processes.
type times struct{ compile, call time.Duration }

// outcome is what has become of a program.
type outcome struct {
	program
	size           int
	usage          abi.Usage
	ours, wasmtime times
	equal          bool
}

// check runs a program and checks what is expected of it.
func (l lab) check(ctx context.Context, p program) (o outcome, err error) {
	o.program = p
	dir := l.folder(p.Title)
	for _, name := range []string{"plugins", "ours/work", "ours/tmp", "wasmtime/work", "wasmtime/tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return o, err
		}
	}
	wasm, err := l.fetch(ctx, p.File)
	if err != nil {
		return o, err
	}
	o.size = len(wasm)
	if err := os.WriteFile(filepath.Join(dir, "plugins", "program.wasm"), wasm, 0o600); err != nil {
		return o, err
	}

	if p.Refused != "" {
		r := l.run(ctx, dir, "", l.toolhost, "inspect", "plugins/program.wasm")
		switch {
		case r.err == nil:
			return o, fmt.Errorf("expected to be refused with %q, and is not", p.Refused)
		case !strings.Contains(r.stderr, p.Refused):
			return o, fmt.Errorf("expected to be refused with %q, got %w: %s", p.Refused, r.err, r.stderr)
		}
		return o, nil
	}
	return o, l.compare(ctx, &o, dir)
}

// folder is where a program runs.
func (l lab) folder(title string) string {
	return filepath.Join(l.dir, strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return '_'
		}
		return r
	}, strings.ToLower(title)))
}

// compare calls a program as a tool and in wasmtime.
func (l lab) compare(ctx context.Context, o *outcome, dir string) error {
	share, err := l.prepare(ctx, o.program, dir)
	if err != nil {
		return err
	}
	got, err := l.call(ctx, o, dir)
	if err != nil {
		return err
	}
	if !strings.Contains(strings.Join(strings.Fields(got), ""), o.Expect) {
		return fmt.Errorf("expected %q, got %.2000q", o.Expect, got)
	}

	want, err := l.reference(ctx, o, dir, share)
	o.equal = err == nil && got == want
	switch {
	case o.equal && o.Differs != "":
		return errors.New("does the same in wasmtime, expected that it does not")
	case !o.equal && o.Differs == "":
		return fmt.Errorf("got %.2000q, in wasmtime %.2000q, %w", got, want, err)
	}
	return nil
}

// prepare writes the files of a program, and returns its folder /share.
func (l lab) prepare(ctx context.Context, p program, dir string) (share string, err error) {
	share = filepath.Join(dir, "share")
	if p.Share == "" {
		err = os.MkdirAll(share, 0o700)
	} else {
		share, err = l.share(ctx, p)
	}
	if err != nil {
		return "", err
	}

	grants := fmt.Sprintf("files: [{dir: ours/work, path: /work, mode: write}, {dir: ours/tmp, path: /tmp, mode: write}, {dir: %q, path: /share, mode: read}]", share)
	files := map[string]string{
		"plugins/program.toolhost.yaml": p.manifest(),
		"toolhost.yaml": "plugins: [plugins]\nhost: {plugin_size: 128MiB, compile_time: 10m, compile_memory: 4GiB}\n" +
			"limits: {memory: 512MiB, timeout: 5m}\ngrants:\n  program:\n    " + grants + "\n",
	}
	for _, side := range []string{"ours", "wasmtime"} {
		for name, text := range p.Files {
			files[side+"/work/"+name] = text
		}
		if p.From != "" {
			if err := os.CopyFS(filepath.Join(dir, side, "work"), os.DirFS(filepath.Join(l.folder(p.From), "ours", "work"))); err != nil {
				return "", err
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return share, nil
}

func (p program) args() json.RawMessage {
	args, _ := json.Marshal(map[string]string{"input": p.Input})
	return args
}

// call calls the program as a tool.
func (l lab) call(ctx context.Context, o *outcome, dir string) (string, error) {
	compiled := l.run(ctx, dir, "", l.toolhost, "compile", "--config", "toolhost.yaml")
	if compiled.err != nil {
		return "", fmt.Errorf("compile: %w: %s", compiled.err, compiled.stderr)
	}
	called := l.run(ctx, dir, "", l.toolhost, "call", "--config", "toolhost.yaml", "--json", "program_run", string(o.args()))
	o.ours = times{compiled.cpu, called.cpu}
	if called.err != nil {
		return "", fmt.Errorf("%w: %s%s", called.err, called.stdout, called.stderr)
	}

	var r abi.Result
	if err := json.Unmarshal([]byte(called.stdout), &r); err != nil {
		return "", err
	}
	o.usage = r.Usage
	var text string
	if err := json.Unmarshal(r.Value, &text); err != nil {
		return "", err
	}
	return o.result(text, filepath.Join(dir, "ours"))
}

// result is what a program has printed, or has made.
func (p program) result(printed, dir string) (string, error) {
	if p.Makes == "" {
		return printed, nil
	}
	made, err := os.ReadFile(filepath.Join(dir, "work", p.Makes))
	return string(made), err
}

// reference runs the program in wasmtime.
func (l lab) reference(ctx context.Context, o *outcome, dir, share string) (string, error) {
	var manifest abi.Command
	encoded, err := json.Marshal(o.Command)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(encoded, &manifest); err != nil {
		return "", err
	}
	words, err := manifest.Line(o.args())
	if err != nil {
		return "", err
	}
	stdin := string(o.args())
	if manifest.Stdin != nil {
		if stdin, err = abi.ExpandTemplate(*manifest.Stdin, o.args()); err != nil {
			return "", err
		}
	}

	compiled := l.run(ctx, dir, "", l.wasmtime, "compile", "-W", "exceptions=y", "-o", "program.cwasm", "plugins/program.wasm")
	if compiled.err != nil {
		return "", fmt.Errorf("wasmtime compile: %w: %s", compiled.err, compiled.stderr)
	}
	line := []string{"run", "--allow-precompiled", "-W", "exceptions=y", "--argv0", "run"}
	for name, folder := range map[string]string{"/work": "wasmtime/work", "/tmp": "wasmtime/tmp", "/share": share} {
		line = append(line, "--dir", folder+"::"+name)
	}
	for name, value := range manifest.Env {
		line = append(line, "--env", name+"="+value)
	}
	ran := l.run(ctx, dir, stdin, l.wasmtime, append(append(line, "program.cwasm"), words...)...)
	o.wasmtime = times{compiled.cpu, ran.cpu}
	var exit *exec.ExitError
	if ran.err != nil && (!errors.As(ran.err, &exit) || !manifest.Succeeds(exit.ExitCode())) {
		return "", fmt.Errorf("wasmtime: %w: %s", ran.err, ran.stderr)
	}
	return o.result(ran.stdout, filepath.Join(dir, "wasmtime"))
}

// manifest is the sidecar of the program.
func (p program) manifest() string {
	command := map[string]any{"output": abi.OutputText}
	for name, value := range p.Command {
		command[name] = value
	}
	encoded, _ := json.Marshal(command) // from YAML: strings, numbers and lists
	return "abi: toolhost_v1\nname: program\nversion: 1.0.0\ndescription: A program.\ntools:\n  - name: run\n    description: Runs it.\n" +
		"    input_schema: {type: object, properties: {input: {type: string}}}\n    command: " + string(encoded) + "\n"
}

// ran is a process that has ended.
type ran struct {
	stdout, stderr string
	cpu            time.Duration // of its children too
	err            error
}

// run runs a command in a folder.
func (l lab) run(ctx context.Context, dir, stdin, name string, args ...string) ran {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()

	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TOOLHOST_DATA="+filepath.Join(dir, "data"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err}
}
