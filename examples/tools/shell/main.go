// Plugin shell runs shell scripts, with the usual commands for files and texts, in a granted
// folder. It starts no processes: all commands are part of the plugin.
package main

//go:generate go run ./internal/copy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/examples/tools/shell/internal/interp"
	"github.com/toolhost/toolhost/guest"
)

// shown is how many bytes of an output the answer contains: half of them from its beginning,
// half from its end.
const shown = 60_000

type shellArgs struct {
	Script string   `json:"script" desc:"Script in the language of bash. It starts in the granted folder" max:"100000"`
	Stdin  string   `json:"stdin,omitempty" desc:"What the script reads"`
	Args   []string `json:"args,omitempty" desc:"$1 and so on"`
}

type shellResult struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
}

type shell struct{ dir folder.Folder }

func (s shell) run(c *guest.Call, in shellArgs) (out shellResult, _ error) {
	script, err := syntax.NewParser().Parse(strings.NewReader(in.Script), "script")
	if err != nil {
		return out, err
	}
	stdout, stderr := &output{live: c.Output()}, &output{live: c.Stderr()}
	runner, err := interp.New(
		interp.Dir(string(s.dir)),
		interp.Env(expand.ListEnviron("HOME="+string(s.dir), "PATH=/bin", "TMPDIR="+string(s.dir))),
		interp.Params(append([]string{"--"}, in.Args...)...),
		interp.StdIO(strings.NewReader(in.Stdin), stdout, stderr),
		interp.OpenHandler(func(ctx context.Context, path string, flag int, mode os.FileMode) (io.ReadWriteCloser, error) {
			file, err := interp.DefaultOpenHandler()(ctx, path, flag, mode)
			return file, explain(err)
		}),
		interp.CallHandler(func(_ context.Context, args []string) ([]string, error) { return args, c.Err() }),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return execute }),
	)
	if err != nil {
		return out, fmt.Errorf("no folder is granted as %s: %w", s.dir, err)
	}

	err = runner.Run(context.Background(), script)
	if err := c.Err(); err != nil {
		return out, err
	}
	code, exited := errors.AsType[interp.ExitStatus](err)
	if err != nil && !exited {
		return out, err
	}
	return shellResult{stdout.text(), stderr.text(), int(code)}, nil
}

// output passes on what is written as it is written, and keeps its beginning and its end.
type output struct {
	live io.Writer

	mu         sync.Mutex
	head, tail []byte
	dropped    int
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if n, err := o.live.Write(p); err != nil {
		return n, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(p), shown/2-len(o.head))
	o.head = append(o.head, p[:n]...)
	o.tail = append(o.tail, p[n:]...)
	if over := len(o.tail) - shown/2; over > shown { // seldom, because it copies
		o.dropped += over
		o.tail = append([]byte(nil), o.tail[over:]...)
	}
	return len(p), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if over := len(o.tail) - shown/2; over > 0 {
		o.dropped += over
		o.tail = o.tail[over:]
	}
	middle := ""
	if o.dropped > 0 {
		middle = fmt.Sprintf("\n… %d bytes left out …\n", o.dropped)
	}
	return strings.ToValidUTF8(string(o.head)+middle+string(o.tail), "\ufffd")
}

// execute runs a command that is not built into the shell.
func execute(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	run, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(hc.Stderr, "%s: command not found\n", args[0])
		return interp.ExitStatus(127)
	}
	var in io.Reader = hc.Stdin
	if hc.Stdin == nil {
		in = strings.NewReader("")
	}

	err := run(&command{ctx: ctx, dir: hc.Dir, args: args, in: in, out: hc.Stdout, err: hc.Stderr})
	switch {
	case err == nil || errors.Is(err, io.ErrClosedPipe): // what reads its output has enough
		return nil
	case errors.Is(err, guest.ErrCanceled):
		return err
	}
	if _, exits := errors.AsType[interp.ExitStatus](err); exits {
		return err
	}
	fmt.Fprintf(hc.Stderr, "%s: %v\n", args[0], explain(err))
	return interp.ExitStatus(1)
}

var errOutside = errors.New("not in the granted folder " + folder.Path + ", and there is no other")

// explain adds an explanation to errors about paths outside of the folder, which do not exist
// in the sandbox.
func explain(err error) error {
	where, ok := errors.AsType[*fs.PathError](err)
	if ok && errors.Is(err, fs.ErrNotExist) && path.IsAbs(where.Path) && !strings.HasPrefix(path.Clean(where.Path)+"/", folder.Path+"/") {
		return &fs.PathError{Op: where.Op, Path: where.Path, Err: errOutside} // the shell continues after errors of this type only
	}
	return err
}

func newPlugin(work folder.Folder) *guest.Plugin {
	closed := false
	return &guest.Plugin{
		Name: "shell", Version: "1.0.0", Description: "Runs shell scripts in a folder, without a process.", License: "Apache-2.0",
		Needs: guest.Needs{Files: []guest.FileNeed{{Path: folder.Path, Mode: "write"}}},
		Tools: []guest.Tool{{
			Name: "shell", Description: "Runs a bash script in the granted folder, with pipes, functions and these commands: " + names() + ". No other programs, and no network. Returns output and exit code.",
			Handler: guest.Handle(shell{work}.run), Hints: guest.Hints{OpenWorld: &closed, Concurrency: "serial", SupportsBackground: true},
			Examples: []guest.Example{
				{Name: "a pipe", Args: shellArgs{Script: "printf 'b\\na\\nb\\n' | sort | uniq -c | sort -rn"}, Result: shellResult{Stdout: "      2 b\n      1 a\n"}},
				{Name: "an exit code", Args: shellArgs{Script: "git status; exit 3"}, Result: shellResult{Stderr: "git: command not found\n", ExitCode: 3}},
				{Name: "a mistake", Args: shellArgs{Script: "if true; then"}, Error: "script:1:1"},
			},
		}},
	}
}

func init() { guest.Serve(newPlugin(folder.Path)) }

func main() {}
