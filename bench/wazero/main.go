// Command wazero measures what a change of the runtime would give metering. It applies the
// patch in this folder to a copy of the release in go.mod, and runs the workloads of bench
// plain and metered on both, in processes of their own. It needs git and Linux.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const runtimeModule = "github.com/tetratelabs/wazero"

func main() {
	o := options{}
	flag.IntVar(&o.processes, "processes", 9, "processes of each build")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each workload in a process")
	flag.StringVar(&o.only, "only", "", "comma-separated workloads; all if empty")
	dir := flag.String("keep", "", "folder for the patched copy of the runtime and what is built, which are kept; a temporary one if empty")
	flag.StringVar(&o.child, "child", "", "for its own processes: where the workloads in Go are")
	flag.Uint64Var(&o.seed, "seed", 0, "for its own processes: of the layouts")
	flag.Parse()

	if err := o.run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "wazero:", err)
		os.Exit(1)
	}
}

type options struct {
	processes, rounds int
	only              string

	child string // set in the processes that measure
	seed  uint64 // of their layouts
}

func (o options) run(dir string) error {
	if o.child != "" {
		times, err := o.measure()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(times)
	}
	if dir == "" {
		temp, err := os.MkdirTemp("", "bench-wazero-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}

	builds, err := buildAll(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s, %d processes of each build, %d rounds\n", runtimeModule, builds.version, o.processes, o.rounds)

	all := make([]comparison, 0, o.processes)
	for range o.processes {
		var c comparison
		o.seed = rand.Uint64()
		for _, i := range rand.Perm(len(c)) {
			if c[i], err = o.process(builds, i); err != nil {
				return err
			}
		}
		all = append(all, c)
	}
	fmt.Print(table(all))
	return nil
}

// process runs a build once.
func (o options) process(b builds, build int) (times, error) {
	command := b.commands[build]
	cmd := exec.Command(command, "-child", b.dir, "-seed", fmt.Sprint(o.seed), "-rounds", fmt.Sprint(o.rounds), "-only", o.only)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(command), err)
	}
	var t times
	return t, json.Unmarshal(out, &t)
}

// The builds: with the release in go.mod, and with a copy of it that is patched.
const (
	released = iota
	patched
)

var names = [...]string{released: "released", patched: "patched"}

type builds struct {
	dir      string // has the workloads in Go too
	version  string
	commands [len(names)]string
}

// buildAll builds this command with each runtime, into dir.
func buildAll(dir string) (builds, error) {
	dir, err := filepath.Abs(dir)
	b := builds{dir: dir}
	if err != nil {
		return b, err
	}
	if err := buildGo(filepath.Join(dir, "go.wasm")); err != nil {
		return b, err
	}
	runtime := filepath.Join(dir, "wazero")
	if b.version, err = patchedCopy(runtime); err != nil {
		return b, err
	}
	mod, err := replace(dir, runtime)
	if err != nil {
		return b, err
	}

	for i, with := range [...][]string{released: nil, patched: {"-modfile", mod}} {
		b.commands[i] = filepath.Join(dir, "bench-"+names[i])
		args := slices.Concat([]string{"build"}, with, []string{"-o", b.commands[i], "./wazero"})
		if _, err := output(exec.Command("go", args...)); err != nil {
			return b, err
		}
	}
	return b, nil
}

// buildGo builds the workloads in Go.
func buildGo(to string) error {
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", to, "./workloads/go")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build workloads/go, from the folder bench: %w\n%s", err, said)
	}
	return nil
}

//go:embed counter.patch
var patch []byte

// patchedCopy copies the runtime from the module cache, where all is read-only, and
// patches it. It returns the version.
func patchedCopy(to string) (version string, err error) {
	about, err := output(exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", runtimeModule))
	if err != nil {
		return "", err
	}
	version, from, _ := strings.Cut(about, " ")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return "", err
	}

	apply := exec.Command("git", "apply")
	apply.Dir, apply.Stdin = to, bytes.NewReader(patch)
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(to)) // else it would patch a repository around
	_, err = output(apply)
	return version, err
}

// replace writes a copy of go.mod with the runtime in a folder, and returns its name.
func replace(dir, runtime string) (string, error) {
	product, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	mod := filepath.Join(dir, "patched.mod")
	for to, from := range map[string]string{mod: "go.mod", filepath.Join(dir, "patched.sum"): "go.sum"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return "", err
		}
	}

	_, err = output(exec.Command("go", "mod", "edit", "-replace", runtimeModule+"="+runtime, "-replace", "github.com/toolhost/toolhost="+product, mod))
	return mod, err
}

// output is what a command prints. Its error has what it says.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err == nil {
		return strings.TrimSpace(string(out)), nil
	}
	said := ""
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		said = "\n" + string(exit.Stderr)
	}
	return "", fmt.Errorf("%s %s, from the folder bench: %w%s", cmd.Args[0], cmd.Args[1], err, said)
}
