// Command toolhost runs the tools of AI agents as sandboxed WebAssembly plugins. Flags,
// files, signals and exit codes are dealt with only in this package; the packages below it
// do the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	stdlog "log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	_ "time/tzdata" // schedules use the names of time zones, for which a small container has no data

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/cmd/toolhost/internal/exporters"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/vault"
)

func main() {
	host.CompilerMain()
	stdlog.SetOutput(io.Discard) // net/http writes bytes from servers to it, which may be a secret

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// app is one execution of the command.
type app struct {
	ui
	config  *loadedConfig
	flags   *pflag.FlagSet // flags with which config was read
	environ []string
	inForce atomic.Pointer[loadedConfig] // configuration whose live settings are in force: see now
	level   slog.LevelVar                // current log level
	exports *exporters.Exporters         // exporters of a server; nil in other commands, which measure nothing
}

// run is the whole program, except for the process itself: it takes arguments and streams,
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
	if _, reported := errors.AsType[*reportedError](err); !reported {
		a.fail(d)
	}
	return d.exit
}

// commands lists the functions that create the commands, in no particular order.
var commands = []func(*app) *cobra.Command{
	callCommand, compileCommand, configCommand, demoCommand, devCommand, diffCommand, execCommand, inspectCommand, listCommand, lockCommand, mcpCommand, serveCommand, trustCommand,
	approveCommand, auditCommand, backupCommand, benchCommand, buildCommand, checkCommand, hostsCommand, kvCommand, logsCommand, messageCommand, newCommand, reloadCommand, removeCommand, restoreCommand, schedulesCommand, sealCommand, searchCommand, secretCommand, signCommand, spawnCommand, stopCommand, tasksCommand, testCommand, verifyCommand, waitCommand,
	exportCommand, healthCommand, manCommand, versionCommand,
	addCommand, pullCommand, pushCommand, updateCommand,
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "toolhost",
		Short: "Run the tools of AI agents as sandboxed WebAssembly plugins",
		Long: `Toolhost runs the tools of AI agents as sandboxed WebAssembly plugins. Each call
is metered by fuel and has limits on time, memory and output. Long calls can run
in the background, where an agent checks and stops them.`,
		SilenceErrors: true, SilenceUsage: true,
		Version: version(),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Name() == cobra.ShellCompRequestCmd { // it loads the configuration for the completed command
				return nil
			}
			return a.load(cmd.Flags())
		},
	}
	root.SetVersionTemplate("toolhost {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.Args = unknownCommand

	flags := root.PersistentFlags()
	flags.String("config", "", "configuration `file` (default toolhost.yaml, .toml or .json in this folder, if it is trusted)")
	flags.StringArray("plugins", nil, "`folder` of plugins, or oci://HOST/NAME:TAG; may be repeated")
	flags.String("data", "", "`folder` for compiled and accepted plugins and background runs")
	flags.String("log-level", "", "least severe `level` that is logged: debug, info, warn or error (default warn)")
	flags.String("log-format", "", "`format` of the log: text or json (default text)")

	for _, command := range commands {
		c := command(a)
		c.Args = usageArgs(c.Args)
		root.AddCommand(c)
	}
	addCompletion(a, root)
	return root
}

// flagError returns the error for a flag that cannot be parsed.
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
	hint := cmd.CommandPath() + " --help shows the flags"
	if _, unknown := errors.AsType[*pflag.NotExistError](err); unknown && cmd.Name() == "call" {
		hint += `; arguments of the tool are JSON, such as '{"text":"a b"}'`
	}
	return &usageError{err, hint}
}

// unknownCommand refuses arguments to the root command, and suggests a command.
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

// load loads the configuration, and warns about files in the working directory that were
// ignored.
func (a *app) load(flags *pflag.FlagSet) (err error) {
	a.flags = flags
	a.config, err = loadConfig(flags, a.environ)
	a.setLevel(a.config)
	a.announceIgnored(a.config, newLoaded())
	return err
}

// announceIgnored warns about files in the working directory that a configuration ignored,
// but the earlier one did not.
func (a *app) announceIgnored(c, before *loadedConfig) {
	for _, f := range c.ignored {
		if !slices.Contains(before.ignored, f) {
			a.announceAs(slog.LevelWarn, f.String(), "file", f.path)
		}
	}
}

// usageArgs turns the errors of check, which checks a command's arguments, into usage
// errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err, "usage: " + cmd.UseLine()}
		}
		return nil
	}
}

// now returns the configuration whose live settings are in force, which is the one from the
// last reload. All other settings in force are those in config.
func (a *app) now() *loadedConfig {
	if c := a.inForce.Load(); c != nil {
		return c
	}
	return a.config
}

// setLevel sets the log level from a configuration.
func (a *app) setLevel(c *loadedConfig) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.logLevel)) // checked when it was loaded
	a.level.Set(level)
}

// logger returns a logger to stderr, as configured.
func (a *app) logger() *slog.Logger {
	opts := &slog.HandlerOptions{Level: &a.level}

	if a.config.logFormat == formatJSON {
		return slog.New(slog.NewJSONHandler(a.err, opts))
	}
	text := slog.NewTextHandler(a.err, opts)
	if terminal(a.err) > 0 {
		return slog.New(newLineHandler(text, a.err))
	}
	return slog.New(text)
}

var errNoFolder = &usageError{errors.New("no folder of plugins"), "name one with --plugins, or in plugins of the configuration"}

// open opens a service that keeps its runs in memory, unless adapt changes that. done
// interrupts active runs, and closes the service.
func (a *app) open(ctx context.Context, adapt func(*server.Config)) (s *server.Service, done func(), err error) {
	if len(a.config.folders()) == 0 {
		return nil, nil, errNoFolder
	}

	cfg, err := a.serviceConfig()
	if err != nil {
		return nil, nil, err
	}
	if adapt != nil {
		adapt(&cfg)
	}
	if cfg.CacheDir == "" && cfg.DataDir != "" {
		if _, err := a.config.cacheDir(); err != nil { // it says why
			return nil, nil, err
		}
	}

	if s, err = server.Open(ctx, cfg); err != nil {
		return nil, nil, err
	}
	return s, func() { a.closeService(ctx, s) }, nil
}

// serviceConfig returns the configuration of a service.
func (a *app) serviceConfig() (cfg server.Config, err error) {
	cfg = a.config.server
	if !owned.Foreign(a.config.data) { // otherwise root would run compiled code of that user
		cfg.CacheDir, err = a.config.cacheDir()
	}
	if err != nil {
		return cfg, err
	}
	cfg.Lock, cfg.Logger = a.config.lock(), a.logger()
	a.config.apply(&cfg)
	if a.exports != nil {
		cfg.Telemetry = a.exports.Config
	}
	if err := a.openSecrets(a.config); err != nil {
		return cfg, err
	}
	cfg.Secrets = a.config.vault
	return cfg, nil
}

// apply sets whatever a reload can change in a service. The exceptions are secrets and
// watching, which not every command uses.
func (c *loadedConfig) apply(to *server.Config) {
	s := c.server
	to.Folders, to.Grants, to.Interpret = c.folders(), s.Grants, s.Interpret
	to.Limits, to.MaxLimits, to.Answer, to.Park, to.ParkAfter = s.Limits, s.MaxLimits, s.Answer, s.Park, s.ParkAfter
	to.Runs, to.Listing, to.Approvals = to.Runs.Reconfigured(s.Runs), s.Listing, s.Approvals
	if to.Verifier = nil; len(c.trust.Rules) > 0 {
		to.Verifier = &c.trust
	}

	to.Approve = c.decide
	if c.approve == approveAsk {
		to.Approve, to.Approvals.Ask = nil, true
	}
}

// openSecrets opens the secrets of a configuration.
func (a *app) openSecrets(c *loadedConfig) (err error) {
	if err := c.checkKeys(); err != nil {
		return &usageError{fmt.Errorf("secrets_key: %w", err), keyHint(err)}
	}
	sources := map[string]vault.Source{}
	for name, s := range c.secrets {
		sources[name] = *s
	}
	c.vault, err = vault.New(sources, vault.Keys(c.secretsKey), a.logger())
	return err
}

// keyHint says how to make the file of keys readable.
func keyHint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "let the user of the server read it: chown root:GROUP FILE; chmod 440 FILE, or LoadCredential= in the unit of systemd"
	}
	return ""
}

// sameSecrets reports whether two configurations have the same sources of secrets and the
// same keys.
func (c *loadedConfig) sameSecrets(as *loadedConfig) bool {
	return c.secretsKey == as.secretsKey && c.vault.SameKeys(as.vault) && reflect.DeepEqual(c.secrets, as.secrets)
}

// openKept opens a service that keeps its runs in a folder, or in an engine if that is not
// nil. shared says whether the service has several clients.
func (a *app) openKept(ctx context.Context, folder string, e engine.Engine, shared bool) (*server.Service, func(), error) {
	return a.open(ctx, func(cfg *server.Config) {
		cfg.Engine, cfg.DataDir, cfg.Watch, cfg.OnReload = e, folder, a.config.watch, a.reloaded
		if a.config.audit {
			cfg.AuditDir, cfg.Audit.Logger = auditFolder(a.config.data, folder), a.logger()
		}
		cfg.CompileAhead, cfg.DescribeLater = a.config.compile == compileAhead, true
		cfg.Host.Shared, cfg.Host.Computing = shared, spareProcessor()
	})
}

// spareProcessor gives Go one processor more than guests may use for computing, and returns
// the number for guests. While all of its processors are busy, Go polls the network only
// every 10 ms. The spare one makes sure that there is always one to poll.
var spareProcessor = sync.OnceValue(func() int {
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(n + 1)
	return n
})

// closeService closes a service and interrupts its active runs, even if ctx is done.
func (a *app) closeService(ctx context.Context, s *server.Service) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		a.notef("toolhost: close: %v", err)
	}
}

// shutdownGrace is how long a command, before it exits, waits for active runs.
const shutdownGrace = 100 * time.Millisecond

// errNoData means that no data folder is known. The working directory is not used instead,
// because it may contain a data folder written by someone else.
var errNoData = &usageError{errors.New("no data folder: no home folder is known"), "set HOME to an absolute path, or choose a folder with --data"}

// cacheDir creates the folder for compiled code, in a data folder to which only this user
// can write.
func (c *loadedConfig) cacheDir() (string, error) {
	if c.data == "" {
		return "", errNoData
	}

	cache := filepath.Join(c.data, "cache")
	err := os.MkdirAll(c.data, 0o700)
	if err == nil {
		if owned.Foreign(c.data) {
			return "", &usageError{fmt.Errorf("data folder: %s belongs to another user", c.data), "run this command as that user; toolhost call --remote calls through its server"}
		}
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

// decide decides whether to call tools that require a person's approval when nobody can be
// asked.
func (c *loadedConfig) decide(context.Context, server.Approval) error {
	if c.approve == approveAuto {
		return nil
	}
	return errors.New("it requires approval, and nobody can be asked here: set approve to ask or auto in the configuration, or use toolhost call")
}

// short cuts a text to fit into a column.
func short(s string, n int) string {
	s = oneLine(strings.TrimSpace(s))
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
