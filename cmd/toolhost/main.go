// Command toolhost runs the tools of AI agents as sandboxed WebAssembly
// plugins. It is the only place that knows flags, files, signals and exit
// codes; what it does is in the packages below it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	_ "time/tzdata" // schedules name time zones, and a small container knows none

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/vault"
)

func main() {
	host.CompilerMain()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// app is one run of the command.
type app struct {
	ui
	config  *loaded
	flags   *pflag.FlagSet // that config was read with
	environ []string
	inForce atomic.Pointer[loaded] // whose grants are in force; nil: those of config
}

// run is the whole program, without the process: it takes arguments and streams,
// and returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	a := &app{ui: ui{in: in, out: out, err: errw, json: slices.Contains(args, "--json")}, environ: os.Environ()}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)

	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.lost
	}
	if err == nil {
		return exitOK
	}

	d := diagnose(ctx, err)
	var reported *reportedError
	if !errors.As(err, &reported) {
		a.fail(d)
	}
	return d.exit
}

// commands make the commands, in no particular order.
var commands = []func(*app) *cobra.Command{
	callCommand, compileCommand, configCommand, demoCommand, execCommand, inspectCommand, listCommand, mcpCommand, pinCommand, serveCommand, trustCommand, unpinCommand,
	approveCommand, auditCommand, checkCommand, kvCommand, logsCommand, messageCommand, removeCommand, schedulesCommand, searchCommand, secretCommand, spawnCommand, stopCommand, tasksCommand, waitCommand,
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "toolhost",
		Short: "Run the tools of AI agents as sandboxed WebAssembly plugins",
		Long: `Toolhost runs the tools of AI agents as sandboxed WebAssembly plugins. Each call
is metered by fuel and has limits on time, memory and output. Long calls can run
in the background, where an agent checks and stops them.`,
		SilenceErrors: true, SilenceUsage: true,
		Version:           version(),
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.load(cmd.Flags()) },
	}
	root.SetVersionTemplate("toolhost {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.Args = unknownCommand

	flags := root.PersistentFlags()
	flags.String("config", "", "configuration `file` (default toolhost.yaml, .toml or .json in this folder, if it is trusted)")
	flags.StringArray("plugins", nil, "`folder` of plugins; may be repeated")
	flags.String("data", "", "`folder` for compiled plugins, pins and background runs")
	flags.String("log-level", "", "least severe `level` that is logged: debug, info, warn or error (default warn)")
	flags.String("log-format", "", "`format` of the log: text or json (default text)")

	for _, command := range commands {
		c := command(a)
		c.Args = usageArgs(c.Args)
		root.AddCommand(c)
	}
	return root
}

// flagError is the error of a flag that cannot be parsed.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	switch {
	case !errors.As(err, &value):
	case value.GetFlag().Value.Type() == "duration":
		err = fmt.Errorf("--%s: expected a duration such as 30s, found %q", value.GetFlag().Name, value.GetValue())
	case errors.As(err, &number):
		err = fmt.Errorf("--%s: expected a whole number, found %q", value.GetFlag().Name, value.GetValue())
	}
	return &usageError{err, cmd.CommandPath() + " --help shows the flags"}
}

// unknownCommand refuses arguments of the root command, with a suggestion.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := &usageError{fmt.Errorf("unknown command %q", args[0]), "toolhost --help shows the commands"}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near := abi.Nearest(args[0], names); near != "" {
		err.hint = fmt.Sprintf("did you mean %q?", near)
	}
	return err
}

// load loads the configuration, and warns of files in the working directory that
// it ignored.
func (a *app) load(flags *pflag.FlagSet) (err error) {
	a.flags = flags
	a.config, err = loadConfig(flags, a.environ)
	for _, f := range a.config.ignored {
		a.announceAs(slog.LevelWarn, f.String(), "file", f.path)
	}
	return err
}

// usageArgs makes errors about the arguments of a command usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err, "usage: " + cmd.UseLine()}
		}
		return nil
	}
}

// version is the version of the module, as the Go toolchain recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// logger logs to stderr, as the configuration says.
func (a *app) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.config.logLevel)) // checked when it was loaded
	opts := &slog.HandlerOptions{Level: level}

	if a.config.logFormat == formatJSON {
		return slog.New(slog.NewJSONHandler(a.err, opts))
	}
	return slog.New(slog.NewTextHandler(a.err, opts))
}

// open opens a service that keeps its runs in memory, unless adapt changes that.
// The returned function closes it, and interrupts active runs.
func (a *app) open(ctx context.Context, adapt func(*server.Config)) (s *server.Service, done func(), err error) {
	if len(a.config.plugins) == 0 && !a.config.exec {
		return nil, nil, &usageError{errors.New("no folder of plugins"), "name one with --plugins, or in plugins of the configuration"}
	}

	cfg := a.config.server
	if cfg.CacheDir, err = a.config.cacheDir(); err != nil {
		return nil, nil, err
	}
	cfg.PinDir, cfg.Logger, cfg.Approve = a.config.pinDir(), a.logger(), a.config.decide
	if a.config.approve == approveAsk {
		cfg.Approve, cfg.Approvals.Ask = nil, true
	}
	if cfg.Secrets, err = a.secrets(); err != nil {
		return nil, nil, err
	}
	cfg.Folders = a.config.folders()
	if adapt != nil {
		adapt(&cfg)
	}

	if s, err = server.Open(ctx, cfg); err != nil {
		return nil, nil, err
	}
	return s, func() { a.closeService(ctx, s) }, nil
}

// secrets returns the secrets of the configuration.
func (a *app) secrets() (host.Secrets, error) {
	if err := a.config.checkKeys(); err != nil {
		return nil, &usageError{fmt.Errorf("secrets_key: %w", err), ""}
	}
	sources := map[string]vault.Source{}
	for name, s := range a.config.secrets {
		sources[name] = *s
	}
	return vault.New(sources, vault.Keys(a.config.secretsKey), a.logger())
}

// openKept opens a service that keeps its runs in a folder, for one client or
// for several.
func (a *app) openKept(ctx context.Context, folder string, shared bool) (*server.Service, func(), error) {
	return a.open(ctx, func(cfg *server.Config) {
		cfg.DataDir, cfg.Watch, cfg.OnReload = folder, a.config.watch, a.reloaded
		if a.config.audit {
			cfg.AuditDir, cfg.Audit.Logger = auditFolder(a.config.data, folder), a.logger()
		}
		cfg.CompileAhead = a.config.compile == compileAhead
		cfg.Host.Shared, cfg.Host.Computing = shared, spareProcessor()
	})
}

// spareProcessor lets Go use one processor more than guests may compute on, and
// returns how many those are. While all its processors are busy, Go polls the
// network only every 10 ms. The spare one always polls.
var spareProcessor = sync.OnceValue(func() int {
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(n + 1)
	return n
})

// closeService closes a service and interrupts active runs, also after ctx is done.
func (a *app) closeService(ctx context.Context, s *server.Service) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		a.notef("toolhost: close: %v", err)
	}
}

// shutdownGrace is how long a command waits for active runs at its end.
const shutdownGrace = 100 * time.Millisecond

// errNoData: no data folder is known. The working directory is not used: it may
// have a data folder that someone else wrote.
var errNoData = &usageError{errors.New("no data folder: no home folder is known"), "set HOME to an absolute path, or choose a folder with --data"}

// cacheDir makes the folder for compiled code, in a data folder that only this
// user can write to.
func (c *loaded) cacheDir() (string, error) {
	if c.data == "" {
		return "", errNoData
	}

	cache := filepath.Join(c.data, "cache")
	err := os.MkdirAll(c.data, 0o700)
	if err == nil {
		if err := owned.Behind(c.data); err != nil {
			return "", fmt.Errorf("data folder: %w", err)
		}
		if elsewhere, err := filepath.EvalSymlinks(cache); err == nil { // a link in the user's own folder is the user's
			cache = elsewhere
		}
		err = os.MkdirAll(cache, 0o700)
	}
	if err != nil {
		return "", &usageError{fmt.Errorf("data folder: %w", err), "choose another with --data"}
	}
	return cache, nil
}

// decide decides on tools that require a person's approval, where nobody can be
// asked.
func (c *loaded) decide(context.Context, server.Approval) error {
	if c.approve == approveAuto {
		return nil
	}
	return errors.New("it requires approval, and nobody can be asked here: set approve to auto in the configuration, or use toolhost call")
}

// short cuts text for a column.
func short(s string, n int) string {
	s = oneLine(strings.TrimSpace(s))
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
