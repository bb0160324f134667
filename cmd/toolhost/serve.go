package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/mcpapi"
	"github.com/toolhost/toolhost/server/webui"
	"github.com/toolhost/toolhost/server/wire"
)

func serveCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the tools and background runs over HTTP",
		Long: `Serve the tools over HTTP on a socket in the data folder. The commands spawn,
check, wait, stop, logs, tasks, remove, schedules, backup and others talk to it. With --listen it also serves
a TCP address, with a page for operators. Runs, their output, notices and schedules
are kept in the data folder, or with --engine in a PostgreSQL database that several
servers may share. A restarted server continues the runs whose tools allow it.

The configuration and the plugins are read again when their files change (unless
watch is false), at SIGHUP, and by toolhost reload. What has changed is printed, and
which settings need a restart. A configuration that has problems changes nothing.

SIGINT or SIGTERM shuts it down: it accepts nothing new, waits for calls and runs
as long as serve.drain says, and interrupts the rest. If that takes longer, it
prints what it waits for, and gives up after 45 more seconds. A second signal ends
it at once.`,
		Example: `  toolhost serve
  toolhost serve --listen 127.0.0.1:7070
  curl --unix-socket ~/.local/share/toolhost/serve/http.sock http://localhost/v1/tools`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runServer(cmd.Context()) },
	}
	cmd.Flags().String("engine", "", "keep runs in the PostgreSQL database with this `URL`, which other hosts may share")
	cmd.Flags().String("listen", "", "also serve this `address`, such as 127.0.0.1:7070; other machines are served only with a token or oauth")
	return cmd
}

// runServer serves until ctx is done.
func (a *app) runServer(ctx context.Context) error {
	configCheck{a.config}.checkListen()
	if err := a.config.problems.usage(); err != nil {
		return err
	}
	shared, disconnect, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	closeExports, err := a.openExports(ctx, true)
	if err != nil {
		return err
	}
	defer closeExports()
	if _, err := a.config.cacheDir(); err != nil { // nothing starts on a data folder that is refused
		return err
	}
	a.announce(fmt.Sprintf("starting: plugins from %s; data in %s", oneLine(a.config.folderNames()), oneLine(a.config.data)))
	s, done, err := a.openFreed(ctx, func() (*server.Service, func(), error) {
		return a.openKept(ctx, a.config.runsFolder(), shared, true)
	})
	if err != nil {
		return err
	}

	mcp, err := mcpapi.NewHandler(s, mcpapi.Config{Version: version(), Logger: a.logger()})
	if err != nil {
		done()
		return err
	}
	defer within(endGrace, mcp.Close)

	listeners, err := a.config.listeners()
	if err != nil {
		done()
		return err
	}

	defer removeSocket(socketPath(a.config.data))()

	signal.Ignore(syscall.SIGPIPE) // the process continues if nobody reads its log
	reloads := &reloader{app: a, service: s, serves: true}
	approvals, err := identity.NewApprovalToken(a.config.approvalToken)
	if err != nil {
		done()
		return err
	}
	page := webui.New(s, webui.Config{
		Version: version(), Settings: operatorPage{a}.settings, Lacking: operatorPage{a}.lacking(s),
		Reload: reloads.reload, Approvals: approvals, Logger: a.logger(),
	})
	api := httpapi.New(s, httpapi.Config{
		Reload:  reloads.reload,
		Version: version(), Token: a.config.token, Approvals: approvals, OAuth: a.config.issuer(), MCP: mcp, Page: page,
		SecretForm: webui.NewSecretForm(s, a.logger()), Metrics: a.exports.Metrics, MetricsToken: a.config.metricsToken, Logger: a.logger(),
	})
	s.SecretLinks().ServeAt(a.config.secretForm(listeners))
	defer within(endGrace, reloads.keepReloading())
	d := daemon{a, s, api, listeners}
	return d.serve(ctx)
}

// How long serve waits for another process that uses its folder, and how often it tries: a
// killed process keeps its lock until it has exited.
const (
	lockWait  = 5 * time.Second
	lockRetry = 100 * time.Millisecond
)

// openFreed opens a service on a folder that another process may still be using for a moment.
func (a *app) openFreed(ctx context.Context, open func() (*server.Service, func(), error)) (*server.Service, func(), error) {
	for began := (time.Time{}); ; {
		s, done, err := open()
		switch {
		case !errors.Is(err, server.ErrLocked):
			return s, done, err
		case began.IsZero():
			began = time.Now()
			a.announce(fmt.Sprintf("the data folder is in use: waiting up to %v for the other process to end", lockWait))
		case time.Since(began) >= lockWait:
			return nil, nil, &usageError{err, "stop that process first, or choose another folder with --data"}
		}
		if err := pause(ctx, lockRetry); err != nil {
			return nil, nil, err
		}
	}
}

// A daemon serves a service over HTTP.
type daemon struct {
	*app
	service   *server.Service
	api       *httpapi.API
	listeners []net.Listener
}

// serve serves on all listeners until ctx is done or one of them fails, and then closes the
// service.
func (d daemon) serve(ctx context.Context) (err error) {
	var serving sync.WaitGroup
	failed := make(chan error, len(d.listeners))
	for _, l := range d.listeners {
		serving.Go(func() {
			if err := d.api.Serve(l); err != nil {
				failed <- err
			}
		})
	}
	d.announceReady()
	d.tellSupervisor(sd.SdNotifyReady)

	select {
	case <-ctx.Done():
	case err = <-failed:
	}

	d.tellSupervisor(sd.SdNotifyStopping)
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	ended := make(chan error, 1)
	go func() { // abandoned if it takes too long, or at a second signal
		closed := d.drain()
		serving.Wait()
		ended <- closed
	}()
	return errors.Join(err, d.awaitEnd(ended, again, d.service.WaitsFor))
}

// tellSupervisor reports a state to systemd, if systemd has started the process as a service
// of type notify.
func (d daemon) tellSupervisor(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		d.logger().Warn("systemd was not notified", "state", state, "error", err)
	}
}

// Time limits for a shutdown. Runs that are left behind are recovered at the next start, as
// after a crash.
const (
	endLimit = 45 * time.Second // time after serve.drain; longer than interrupted runs may take to end
	endTell  = 6 * time.Second  // interval at which the server prints what it is waiting for
	endGrace = 2 * time.Second  // time for closing everything else
)

// awaitEnd waits until the shutdown has ended, but at most for serve.drain plus endLimit, or
// until a second signal arrives. After serve.drain, it prints what it is waiting for.
func (d daemon) awaitEnd(ended <-chan error, again <-chan os.Signal, waitsFor func() string) error {
	began := time.Now()
	tell := time.NewTimer(d.now().drain + endTell)
	defer tell.Stop()
	late := time.NewTimer(d.now().drain + endLimit)
	defer late.Stop()

	for {
		select {
		case err := <-ended:
			return err
		case <-again:
			return context.Canceled
		case <-tell.C:
			d.announceAs(slog.LevelWarn, fmt.Sprintf("still shutting down after %v: waiting for %s", time.Since(began).Round(time.Second), waitsFor()))
			tell.Reset(endTell)
		case <-late.C:
			return fmt.Errorf("the shutdown did not end within %v: it waited for %s; the next start recovers what was left",
				d.now().drain+endLimit, waitsFor())
		}
	}
}

// within calls f, and waits for it at most for d.
func within(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()

	select {
	case <-done:
	case <-time.After(d):
	}
}

// announceReady prints the addresses, the number of tools, and all problems.
func (d daemon) announceReady() {
	for _, l := range d.listeners {
		d.announce("listening on "+where(l), "address", where(l))
		if l.Addr().Network() == "tcp" {
			d.announce("page for operators: "+d.config.here(l)+"/", "address", d.config.here(l)+"/")
		}
	}

	found := d.service.Findings()
	text := fmt.Sprintf("ready: %s, %s", plural(len(d.service.Tools()), "tool"), plural(len(found), "problem"))
	if n := len(slices.DeleteFunc(ownPlugins(d.service.Plugins()), func(p *plugins.Plugin) bool { return !p.Ungranted() })); n > 0 {
		text += fmt.Sprintf(", %s not granted", plural(n, "plugin"))
	}
	d.announce(text)
	d.warnOf(found)
	d.warnOfUnused(d.service)
	d.announceStarter(d.service)
	d.announceLacking(ownPlugins(d.service.Plugins()))
}

// httpGrace is how long the server waits for clients to read the responses.
const httpGrace = 2 * time.Second

// drain announces what it is waiting for, refuses new requests, waits for calls and runs, and
// then closes the service.
func (d daemon) drain() error {
	if n := d.service.Stats().Runs.Active; n > 0 {
		d.announce(fmt.Sprintf("shutting down: waiting up to %s for %d runs; a second signal ends at once", d.now().drain, n))
	}
	d.api.Drain()

	ctx, cancel := context.WithTimeout(context.Background(), d.now().drain)
	defer cancel()
	err := d.service.Close(ctx)

	ctx, cancel = context.WithTimeout(context.Background(), httpGrace)
	defer cancel()
	if d.api.Shutdown(ctx) != nil {
		d.logger().Info("closed connections that were still in use")
	}
	return err
}

// announce prints a message for operators, at any log level.
func (a *app) announce(text string, attrs ...any) { a.announceAs(slog.LevelInfo, text, attrs...) }

// announceAs is like announce, with the level that the message has in a JSON log.
func (a *app) announceAs(level slog.Level, text string, attrs ...any) {
	if a.config.logFormat != "json" {
		a.notef("toolhost: %s", text)
		return
	}
	record := slog.NewRecord(time.Now(), level, text, 0)
	record.Add(attrs...)
	_ = a.logger().Handler().Handle(context.Background(), record)
}

func fileProblems(found []plugins.Problem) []wire.FileProblem {
	out := make([]wire.FileProblem, len(found))
	for i, p := range found {
		out[i] = wire.FileProblem{File: p.File, Error: p.Err.Error()}
	}
	return out
}

// warnOf prints problems with plugins, one on each line.
func (a *app) warnOf(found []wire.FileProblem) {
	for _, p := range found {
		a.announceAs(slog.LevelWarn, "problem: "+oneLine(p.File+": "+p.Error), "file", p.File)
	}
}

// warnOfUnused prints the current rules about tools that match no tool. If a plugin has a
// problem, its tools are not known.
func (a *app) warnOfUnused(s *server.Service) {
	if len(s.Problems()) > 0 {
		return
	}
	for _, p := range a.now().unusedRules(s.Tools()) {
		a.announceAs(slog.LevelWarn, oneLine(p.String()), "key", p.key)
	}
}

func mcpCommand(a *app) *cobra.Command {
	var session string
	var dry bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the tools over the Model Context Protocol on stdin and stdout",
		Long: `Serve the tools over the Model Context Protocol on stdin and stdout, in every
revision of the protocol. Background runs and tasks are kept in the data folder: a
client that starts this command again finds them under the same session.

The configuration and the plugins are read again when their files change (unless
watch is false), and at SIGHUP. What has changed is printed. The client is notified
of other tools.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runMCP(cmd.Context(), session, dry) },
	}
	cmd.Flags().StringVar(&session, "session", wire.DefaultSession, "`name` of the session whose runs the client sees")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "call readonly tools only; any other says what it would do")
	return cmd
}

func (a *app) runMCP(ctx context.Context, session string, dry bool) error {
	closeExports, err := a.openExports(ctx, false)
	if err != nil {
		return err
	}
	defer closeExports()
	s, folder, done, err := a.openFree(ctx)
	if err != nil {
		return err
	}
	defer done()
	reloads := &reloader{app: a, service: s}
	defer reloads.keepReloading()()
	defer a.serveOperator(folder, httpapi.New(s, httpapi.Config{Version: version(), Reload: reloads.reload, Logger: a.logger()}))()

	var in io.Reader // nil means the process's own, which can be closed to end a read
	if a.in != os.Stdin {
		in = a.in
	}
	signal.Ignore(syscall.SIGPIPE) // a client that goes away ends the session, not the process
	a.warnOf(s.Findings())
	a.warnOfUnused(s)
	a.announceStarter(s)
	a.announceLacking(ownPlugins(s.Plugins()))
	return mcpapi.Run(ctx, s, mcpapi.Config{Version: version(), Session: session, DryRun: dry, In: in, Out: a.out, Logger: a.logger()})
}

// serveOperator serves the API on a socket in the folder, for decisions on calls that wait for
// approval and for access to runs. end stops it. If the socket cannot be created, for example
// because its path is too long, agents are served nevertheless.
func (a *app) serveOperator(folder string, api *httpapi.API) (end func()) {
	socket := filepath.Join(folder, socketName)
	l, err := listenSocket(socket)
	if err != nil {
		a.logger().Warn("no socket for the operator: toolhost approve does not reach this process", "error", err)
		return func() {}
	}

	remove := removeSocket(socket)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := api.Serve(l); err != nil {
			a.logger().Error("the socket for the operator is closed", "error", err)
		}
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), httpGrace)
		defer cancel()
		_ = api.Shutdown(ctx)
		serving.Wait()
		remove()
	}
}

// maxMCP is the maximum number of toolhost mcp processes that can keep runs in one data
// folder.
const maxMCP = 16

// mcpFolder returns the folder in which the nth of these processes keeps its runs. The folder
// of serve is left to serve.
func (c *loadedConfig) mcpFolder(n int) string {
	name := "mcp"
	if n > 1 {
		name += fmt.Sprintf("-%d", n)
	}
	return filepath.Join(c.data, name)
}

// openFree opens the service on the first of these folders that no other process is using:
// each MCP client may start a process of its own.
func (a *app) openFree(ctx context.Context) (s *server.Service, folder string, done func(), err error) {
	for n := 1; ; n++ {
		folder = a.config.mcpFolder(n)
		s, done, err = a.openKept(ctx, folder, nil, false)
		switch {
		case err == nil:
			a.logger().Info("runs are kept", "folder", folder)
			return s, folder, done, nil
		case !errors.Is(err, server.ErrLocked):
			return nil, "", nil, err
		case n == maxMCP:
			return nil, "", nil, &usageError{fmt.Errorf("%d processes of toolhost mcp already keep runs in %s", n, a.config.data), "end some of them, or choose another folder with --data"}
		}
	}
}
