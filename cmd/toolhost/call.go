package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

func callCommand(a *app) *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "call TOOL [ARGS|@FILE|-]",
		Short: "Run one tool: live output on stderr, the result on stdout",
		Long: `Run one tool and wait for it. The arguments are a JSON object: as text, from a
file with @FILE, or from stdin with -. The result goes to stdout. Live output goes
to stderr, without control characters and with the name of the tool before each
line. --json prints the result with the cost of the call.

--output FILE saves an image, a sound or a resource of the result as FILE, further
ones as FILE-2, FILE-3 and so on. Without any, it saves the result itself instead of
printing it. --output FOLDER/ saves them as 1.png, 2.wav and so on. Nothing is
overwritten: FILE must not exist, and other names that exist are passed over.

The command runs the tool itself, with a key-value store of its own. --remote makes the
call through the running server: its sessions, stores, limits and approvals apply.

Questions of the tool are asked on the terminal. --answer KEY=CONTENT answers one
question with that key instead: CONTENT is a JSON object that fits its form, decline
or cancel. It does not answer questions of other tools that the tool calls, except with
--remote: a server does not say which tool asks.

Exit codes: 0 ok, 1 tool error, 2 usage, configuration or arguments that do not fit,
3 a limit was hit (fuel, memory, time, output), 4 denied, 5 not found, 130 interrupted.`,
		Example: `  toolhost call wordcount '{"text":"a b"}'
  toolhost call primes '{"limit":2000000}' --timeout 10s --json
  toolhost call chart '{"csv":"…"}' --output chart.png
  toolhost call todos_clear '{"all":true}' --answer 'sure={"yes":true}'
  toolhost call memory_recall --remote`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			f.req.Tool = args[0]
			if f.req.Args, err = a.arguments(cmd.Context(), args[1:]); err != nil {
				return err
			}
			return f.call(cmd.Context(), a)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// callFlags holds the flags of the commands that call a tool.
type callFlags struct {
	req     server.Request
	memory  string
	answers []string
	remote  bool
	save    saver
	flags   *pflag.FlagSet
}

func (f *callFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&f.req.Limits.Fuel, "fuel", 0, "fuel budget in `units` (default: what the tool asks for, or 100 billion)")
	flags.DurationVar(&f.req.Limits.Timeout, "timeout", 0, "time limit (default: what the tool asks for, or 2m)")
	flags.StringVar(&f.memory, "memory", "", "memory limit: a `size` such as 64MiB")
	flags.StringVar(&f.req.Session, "session", "cli", "session of the call")
	flags.BoolVar(&f.req.DryRun, "dry-run", false, "say what the call would do, unless the tool is readonly")
	flags.StringArrayVar(&f.answers, "answer", nil, "answer to a question of the tool, as `KEY=CONTENT`; may be repeated")
	flags.BoolVar(&f.remote, "remote", false, "call through the running server: the one at addr, or that of the data folder")
	flags.String("addr", "", "`address` of the server for --remote")
	flags.Bool("json", false, "print the result and its cost as JSON")
	f.save.flag(flags)
	f.flags = flags
}

// call makes the call.
func (f *callFlags) call(ctx context.Context, a *app) error {
	if f.memory != "" {
		if err := size.set(reflect.ValueOf(&f.req.Limits.Memory).Elem(), f.memory); err != nil {
			return &usageError{fmt.Errorf("--memory: %w", err), ""}
		}
	}
	if f.req.Limits.Fuel < 0 || f.req.Limits.Timeout < 0 {
		return &usageError{errors.New("--fuel and --timeout cannot be negative"), "leave the flag out for the default"}
	}
	if err := f.save.check(); err != nil {
		return err
	}
	answers, err := parseAnswers(f.answers)
	if err != nil {
		return err
	}

	if f.remote || f.flags.Changed("addr") {
		err = f.callServer(ctx, a, answers)
	} else {
		err = a.callTool(ctx, f.req, answers, f.save)
	}
	for _, key := range answers.unused() {
		a.notef("toolhost: --answer %s: there was no such question", oneLine(key))
	}
	return err
}

// arguments reads the arguments of a call, which are a JSON object.
func (u *ui) arguments(ctx context.Context, args []string) (json.RawMessage, error) {
	if len(args) == 0 {
		return json.RawMessage("{}"), nil
	}
	data, err := u.source(ctx, args[0])
	if err != nil {
		return nil, err
	}

	if len(data) > server.MaxArgs {
		err := &wire.Problem{Code: wire.CodeTooLarge, Detail: fmt.Sprintf("the arguments have more than %d bytes, the limit", server.MaxArgs)}
		return nil, &hintError{err, "put large data into a folder that the plugin was granted"}
	}
	hint := `quote it for your shell: '{"text":"a b"}'`
	if len(data) == 0 {
		return nil, &usageError{errors.New("the arguments are empty: expected a JSON object"), hint}
	}
	if !json.Valid(data) {
		return nil, &usageError{fmt.Errorf("the arguments are not JSON: %.60s", oneLine(string(data))), hint}
	}
	return data, nil
}

// source returns an argument itself, the content of the file that it names after @, or
// stdin for -. It reads slightly more than the limit on arguments, and trims white
// space.
func (u *ui) source(ctx context.Context, arg string) (data []byte, err error) {
	switch {
	case arg == "-":
		data, err = readUntil(ctx, io.LimitReader(u.in, server.MaxArgs+1))
	case strings.HasPrefix(arg, "@"):
		data, err = os.ReadFile(arg[1:])
	default:
		data = []byte(arg)
	}
	return bytes.TrimSpace(data), err
}

// readUntil reads everything, unless ctx is done first. A pending read of a
// terminal then ends with the process.
func readUntil(ctx context.Context, r io.Reader) ([]byte, error) {
	var data []byte
	done := make(chan error, 1)
	go func() {
		var err error
		data, err = io.ReadAll(r)
		done <- err
	}()

	select {
	case err := <-done:
		return data, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// callTool calls the tool and prints the result. Typing the command counts as the
// person's approval.
func (a *app) callTool(ctx context.Context, req server.Request, answers flagAnswers, save saver) error {
	s, done, err := a.openForCall(ctx, "")
	if err != nil {
		return err
	}
	defer func() { done() }()
	if tool, err := s.Lookup(req.Tool); err == nil && tool.Plugin.Grant.KV.Mode != "" {
		done()
		if s, done, err = a.openKeeping(ctx); err != nil {
			done = func() {}
			return err
		}
	}

	progress := newBar(a.err)
	compileFor(ctx, s, req, progress)
	stdout, stderr := progress.live(req.Tool), progress.live(req.Tool)
	var printed, said bytes.Buffer // by a program: its result, unless it fails; by any tool: its stderr
	req.Stdout, req.Stderr = stdout, io.MultiWriter(stderr, &said)
	if tool, err := s.Lookup(req.Tool); err == nil && tool.Plugin.Info.Shape == host.Command {
		req.Stdout = &printed
	}
	req.Progress = func(p host.Progress) { progress.set(p.Done, p.Total, p.String()) }
	req.Ask = a.asker(req.Tool, false, answers, progress).ask
	result, err := abi.Result{Kind: abi.CanceledKind}, ctx.Err() // interrupted before there was a call
	if err == nil {
		result, err = s.Call(ctx, req)
	}
	if result.Kind == abi.ToolError {
		_, _ = stdout.Write(printed.Bytes())
	}
	stdout.end()
	stderr.end()
	progress.clear()

	if errors.Is(err, plugins.ErrNoTool) { // it may belong to a plugin that was not loaded
		a.warnOf(fileProblems(s.Problems()))
	}
	if err == nil && result.Kind != abi.Success {
		err = failure(s, req, unsaid(result, said.Bytes()))
	}
	if lines := lackingFor(&a.config.config, s, req.Tool); errors.Is(err, host.ErrDenied) && lines != "" {
		err = &hintError{err, a.config.addTo() + "\n" + strings.TrimSuffix(lines, "\n")}
	}

	return a.printCall(ctx, result, err, save)
}

// printCall prints or saves the result of a call.
func (a *app) printCall(ctx context.Context, result abi.Result, err error, save saver) error {
	left := savedResult{}
	if result.Kind == abi.Success && err == nil {
		var failed error
		left, failed = save.save(result.Value, result.Content)
		err = errors.Join(err, failed)
	}
	return a.answer(envelope(ctx, result, err), err, func() {
		a.printSaved(left)
		if terminal(a.err) > 0 && result.Usage.Fuel > 0 {
			a.notef("%s", cost(result.Usage))
		}
	})
}

// failure returns the error of a call without a result: a usage error if the arguments
// do not fit, as for a spawn, and otherwise the tool's error. Arguments that were
// corrected do not fit either, but in that case the tool has run.
func failure(s *server.Service, req server.Request, result abi.Result) error {
	if tool, err := s.Lookup(req.Tool); err == nil && result.Usage.Fuel == 0 && len(tool.CheckArgs(req.Args)) > 0 {
		return &wire.Problem{Code: wire.CodeInvalid, Detail: "args: " + result.Error}
	}
	return &toolError{result}
}

// unsaid returns the result with an error that does not repeat the stderr of a tool that
// has exited, because it was shown already.
func unsaid(result abi.Result, stderr []byte) abi.Result {
	first, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(string(stderr), "\uFFFD")), "\n")
	first = first[:min(len(first), 100)]
	if at := strings.Index(result.Error, ": "+first); result.ExitCode != nil && first != "" && at > 0 {
		result.Error = result.Error[:at]
	}
	return result
}

// openForCall opens a service for one call. It keeps the plugins' data in a folder; if
// that is empty, it keeps nothing.
func (a *app) openForCall(ctx context.Context, folder string) (*server.Service, func(), error) {
	return a.open(ctx, func(cfg *server.Config) {
		cfg.DataDir = folder
		cfg.Park = server.ParkNever // a parked call would end with this process
		cfg.Approve = func(context.Context, server.Approval) error { return nil }
	})
}

// openKeeping opens a service for calling a plugin that has a key-value store. The
// service has a folder of its own: in a server's folder, it would take over the server's
// runs.
func (a *app) openKeeping(ctx context.Context) (*server.Service, func(), error) {
	if a.config.data == "" {
		return nil, nil, errNoData
	}
	return a.openFreed(ctx, func() (*server.Service, func(), error) {
		return a.openForCall(ctx, filepath.Join(a.config.data, "call"))
	})
}

// lackingFor is like lacking, but for one tool.
func lackingFor(c *config, s *server.Service, tool string) string {
	t, err := s.Lookup(tool)
	if err != nil || len(t.Missing) == 0 {
		return ""
	}
	return c.lines(wantedNeeds{t.Plugin, t.Plugin.Manifest.NeedsOf(t.Tool)})
}

// compileFor compiles the called plugin in advance, so that compiling it does not count
// against the call's time limit. If compiling fails, the call reports it.
func compileFor(ctx context.Context, s *server.Service, req server.Request, progress *bar) {
	tool, err := s.Lookup(req.Tool)
	if err != nil || tool.Denied() != nil || len(tool.CheckArgs(req.Args)) > 0 {
		return
	}
	progress.set(0, 1, "compiling "+tool.Plugin.File)
	defer progress.clear()
	_ = tool.Plugin.Compile(ctx)
}

// envelope returns the result, together with the error, for debugging.
func envelope(ctx context.Context, r abi.Result, err error) any {
	out := struct {
		abi.Result
		Failure *diagnosis `json:"failure,omitempty"`
		Trace   string     `json:"trace,omitempty"`
	}{Result: r}
	if err != nil {
		d := diagnose(ctx, err)
		out.Failure = &d
		if call, ok := errors.AsType[*host.CallError](err); ok {
			out.Trace = call.Trace
		}
	}
	return out
}

// resultText returns a result in the form in which it is printed: text as it is, and
// other values as JSON.
func resultText(value json.RawMessage) string {
	var text string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return strings.TrimSuffix(text, "\n")
	}
	return string(value)
}

// printResult prints the result of a call or a run, text as it is and other values as
// JSON, followed by its content.
func (u *ui) printResult(value json.RawMessage, content []abi.Block) {
	if len(value) > 0 {
		u.printf("%s\n", resultText(value))
	}

	for _, b := range content {
		switch b.Type {
		case "text":
			u.printf("%s\n", strings.TrimSuffix(b.Text, "\n"))
		case "resource_link":
			u.printf("[%s %s]\n", oneLine(b.Name), oneLine(b.URI))
		default:
			u.printf("[%s %s, %s]\n", b.Type, oneLine(b.MIMEType), human.Bytes(int64(len(b.Data))))
		}
	}
}

// cost describes the resources that a call has used.
func cost(u abi.Usage) string {
	text := fmt.Sprintf("fuel %s · %s · memory %s · output %s", count(u.Fuel), u.Wall.Round(10*time.Microsecond), human.Bytes(u.MemoryPeak), human.Bytes(u.OutputBytes))
	if u.StartupFuel > 0 {
		text += fmt.Sprintf(" · start-up fuel %s, %s", count(u.StartupFuel), u.Startup.Round(10*time.Microsecond))
	}
	return text
}
