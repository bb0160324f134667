package compiler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Process runs builds, each in a child process of its own. It is safe for
// concurrent use.
type Process struct {
	// Path is the program to start. Its main function must call [Main] first.
	Path string
	// Memory is the memory limit of each build, in bytes, and Processor is the limit on its
	// processor time.
	Memory    int64
	Processor time.Duration
}

// ChildName is the program name that a child process is started with. [Main] recognizes the
// child by it.
const ChildName = "toolhost-compiler"

// wallFactor is the limit on a build's real time as a multiple of its processor time,
// since the machine may be busy.
const wallFactor = 5

// maxProcessor is the largest processor time that wallFactor multiplies.
const maxProcessor = 24 * time.Hour

// job is the header that a child reads before the bytes of the module.
type job struct {
	Memory    int64         `json:"memory"`
	Processor time.Duration `json:"processor"`
	Low       bool          `json:"low"`
	Size      int           `json:"size"` // size of the module, in bytes
}

// reply is the answer of a child. The zero reply means success.
type reply struct {
	Refused *Error `json:"refused,omitempty"`
	Failed  string `json:"failed,omitempty"` // problem with the folder or the system
	Full    bool   `json:"full,omitempty"`   // the problem is a full disk
}

// Build does what the function [Build] does, in a child process that is killed
// when ctx is done. If low is set, the child yields to other work. If a build
// exceeds a limit or crashes the compiler, the error is an [*Error].
func (p *Process) Build(ctx context.Context, dir string, wasm []byte, low bool) error {
	wall := wallFactor * min(p.Processor, maxProcessor)
	ctx, cancel := context.WithTimeoutCause(ctx, wall, exceeded(Wall, "longer than %v", wall))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	head, err := json.Marshal(job{p.Memory, p.Processor, low, len(wasm)})
	if err != nil {
		return err
	}

	var stdout, stderr capped
	cmd := exec.CommandContext(ctx, p.Path)
	cmd.Args = []string{ChildName}
	cmd.Env = []string{}
	cmd.Dir = dir
	cmd.Stdin = io.MultiReader(bytes.NewReader(append(head, '\n')), bytes.NewReader(wasm))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second

	w := watch{dir: dir, stop: stop, done: make(chan struct{})}
	err = runConfined(cmd, dir, low, func() { w.start(cmd.Process.Pid) })
	w.end()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return p.ended(cmd.ProcessState, stderr.String(), err)
	}

	var r reply
	if err := json.NewDecoder(&stdout.Buffer).Decode(&r); err != nil {
		return fmt.Errorf("unexpected answer of the compiler process: %w", err)
	}
	switch {
	case r.Refused != nil:
		return &Error{Kind: Refused, Part: r.Refused.Part, Reason: r.Refused.Reason}
	case r.Full:
		return fmt.Errorf("%w: %s", ErrSpace, r.Failed)
	case r.Failed != "":
		return errors.New(r.Failed)
	}
	return nil
}

// run runs cmd, and calls started once it runs.
func run(cmd *exec.Cmd, started func()) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	started()
	return cmd.Wait()
}

// Exit codes of a child that knows why it ends early. Go's own is 2.
const (
	exitProcessor = 10 + iota
	exitMemory
)

// ended returns why a child ended without an answer. If memory was refused
// before the child had used much of its limit, it was refused by the system.
func (p *Process) ended(state *os.ProcessState, stderr string, err error) error {
	before, after, much := strings.Cut(stderr, muchMark)
	stderr = before + after
	if state == nil {
		return fmt.Errorf("the compiler process does not start: %w", err)
	}

	switch used := state.UserTime() + state.SystemTime(); {
	case state.ExitCode() == exitProcessor, used >= p.Processor:
		return exceeded(Processor, "more than the %v of processor time allowed", p.Processor)
	case state.ExitCode() == exitMemory, much && outOfMemory(stderr):
		return exceeded(Memory, "more than the %d MiB of memory allowed", p.Memory>>20)
	case outOfMemory(stderr): // the system's limit, not the child's
	case state.ExitCode() == 2 || crashed(state):
		return &Error{Kind: Crashed, Part: "module", Reason: firstLine(stderr)}
	}
	return fmt.Errorf("the compiler process ended early: %v: %s", state, firstLine(stderr))
}

// outOfMemory reports whether a child died because its own limit or the system
// refused it memory or a thread.
func outOfMemory(stderr string) bool {
	for _, sign := range []string{"out of memory", "cannot allocate memory", "failed to create new OS thread", "pthread_create failed"} {
		if strings.Contains(stderr, sign) {
			return true
		}
	}
	return collectorFailed(stderr)
}

// collectorFailed reports whether Go's garbage collector crashed. Go 1.26 does not check
// that it gets memory for its queues (runtime.spanQueue).
func collectorFailed(stderr string) bool {
	_, frames, found := strings.Cut(stderr, "\ngoroutine 0 ") // the system stack, where no module is compiled
	_, first, _ := strings.Cut(frames, "\n")
	return found && strings.HasPrefix(stderr, "SIGSEGV: ") && strings.HasPrefix(first, "runtime.")
}

// firstLine returns the line in which Go says why a process died.
func firstLine(stderr string) string {
	for line := range strings.Lines(stderr) {
		if outOfMemory(line) {
			return strings.TrimSpace(line)
		}
	}
	for line := range strings.Lines(stderr) {
		for _, sign := range []string{"fatal error: ", "panic: ", "SIG"} {
			if strings.HasPrefix(line, sign) {
				return strings.TrimSpace(strings.TrimPrefix(line, "fatal error: "))
			}
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	return line
}

// capped keeps the first bytes written to it, and drops the rest.
type capped struct{ bytes.Buffer }

// maxAnswer is how many bytes of a child's output are kept.
const maxAnswer = 64 << 10

func (c *capped) Write(p []byte) (int, error) {
	_, _ = c.Buffer.Write(p[:min(len(p), maxAnswer-c.Len())])
	return len(p), nil
}
