package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/mcpapi"
	"github.com/toolhost/toolhost/server/webui"
)

func serveCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the tools over HTTP, and keep background runs",
		Long: `Serve the tools over HTTP on a socket in the data folder, which spawn, check,
wait, stop, logs, tasks and schedules talk to, and with --listen at an address
too, where a browser finds a page for operators. Runs, their output, notices and
schedules are kept in the data folder: when the server is started again, those
that may go on do.

Plugins that are added, replaced or removed are taken up while it runs (unless
watch is false), and on SIGHUP. The configuration is read once.

SIGINT or SIGTERM ends it: it takes nothing new, waits for what runs as long as
serve.drain says, and interrupts what is left. If that takes longer it says what
it waits for, and gives up 45 seconds later. A second signal ends it at once.`,
		Example: `  toolhost serve
  toolhost serve --listen 127.0.0.1:7070
  curl --unix-socket ~/.local/share/toolhost/serve/http.sock http://localhost/v1/tools`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runServer(cmd.Context()) },
	}
	cmd.Flags().String("listen", "", "listen at an `address` too, such as 127.0.0.1:7070; beyond this machine only with a token or oauth")
	return cmd
}

// runServer serves until ctx ends.
func (a *app) runServer(ctx context.Context) error {
	a.config.checkListen()
	if err := a.config.problems.usage(); err != nil {
		return err
	}
	s, err := a.openFreed(ctx, filepath.Join(a.config.data, "runs"))
	if err != nil {
		return err
	}
	mcp, err := mcpapi.NewHandler(s, mcpapi.Config{Version: version(), Logger: a.logger()})
	if err != nil {
		a.closeService(ctx, s)
		return err
	}
	defer within(endGrace, mcp.Close)
	listeners, err := a.listen()
	if err != nil {
		a.closeService(ctx, s)
		return err
	}
	defer removeSocket(socketPath(a.config.data))()
	signal.Ignore(syscall.SIGPIPE) // that nobody reads the log any more does not end the process
	page := webui.New(s, webui.Config{Version: version(), Logger: a.logger()})
	api := httpapi.New(s, httpapi.Config{
		Version: version(), Token: a.config.token, OAuth: a.config.issuer(), MCP: mcp, Page: page, Logger: a.logger(),
	})
	defer within(endGrace, a.reloadOnHangup(s))
	return a.serveAll(ctx, s, api, listeners)
}

// How long serve waits for the process that has its folder, and how long between
// two looks: one that was killed a moment ago has its lock until it is gone.
const (
	lockWait = 5 * time.Second
	lockLook = 100 * time.Millisecond
)

// openFreed opens the service with its runs kept in a folder that another process
// may have for a moment more.
func (a *app) openFreed(ctx context.Context, folder string) (*server.Service, error) {
	for began := (time.Time{}); ; {
		s, err := a.openKept(ctx, folder, true)
		switch {
		case !errors.Is(err, background.ErrLocked):
			return s, err
		case began.IsZero():
			began = time.Now()
			a.announce(fmt.Sprintf("waiting up to %v for another process to end: %v", lockWait, err))
		case time.Since(began) >= lockWait:
			return nil, &usageError{err, "stop that process first, or choose another folder with --data"}
		}
		if err := pause(ctx, lockLook); err != nil {
			return nil, err
		}
	}
}

// serveAll answers at all listeners until ctx ends or one of them breaks, and
// then ends the service.
func (a *app) serveAll(ctx context.Context, s *server.Service, api *httpapi.API, listeners []net.Listener) (err error) {
	var serving sync.WaitGroup
	broken := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() {
			if err := api.Serve(l); err != nil {
				broken <- err
			}
		})
	}
	a.announceReady(s, listeners)
	select {
	case <-ctx.Done():
	case err = <-broken:
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	ended := make(chan error, 1)
	go func() { // abandoned if it takes too long, or a second signal ends the process
		closed := a.drain(s, api)
		serving.Wait()
		ended <- closed
	}()
	return errors.Join(err, a.awaitEnd(ended, again, s.WaitsFor))
}

// How long after serve.drain the server says again and again what it waits for,
// how often, and how long what is left to do at the end may take. What has not
// ended then is left as by a crash: the next start takes it up.
const (
	endLimit = 45 * time.Second // more than runs are given to end once they are interrupted
	endTell  = 6 * time.Second
	endGrace = 2 * time.Second
)

// awaitEnd waits for the end of the shutdown, but no longer than serve.drain and
// endLimit, or until there is a second signal. When the drain has passed it says
// what it waits for.
func (a *app) awaitEnd(ended <-chan error, again <-chan os.Signal, waitsFor func() string) error {
	began := time.Now()
	tell := time.NewTimer(a.config.drain + endTell)
	defer tell.Stop()
	late := time.NewTimer(a.config.drain + endLimit)
	defer late.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-again:
			return context.Canceled
		case <-tell.C:
			a.announceAs(slog.LevelWarn, fmt.Sprintf("still shutting down after %v: waiting for %s", time.Since(began).Round(time.Second), waitsFor()))
			tell.Reset(endTell)
		case <-late.C:
			return fmt.Errorf("the shutdown did not end within %v, and is given up: it waited for %s; the next start takes up what was left",
				a.config.drain+endLimit, waitsFor())
		}
	}
}

// within calls f, and waits for it no longer than d.
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

// announceReady tells where the server is, what it has and what it lacks.
func (a *app) announceReady(s *server.Service, listeners []net.Listener) {
	for _, l := range listeners {
		a.announce("listening on "+where(l)+a.others(l), "address", where(l))
		if _, local := l.(*namedListener); !local {
			a.announce("page for operators: "+a.here(l)+"/", "address", a.here(l)+"/")
		}
	}
	found := s.Findings()
	a.announce(fmt.Sprintf("ready: %s, %s", plural(len(s.Tools()), "tool"), plural(len(found), "problem")))
	a.warnOf(found)
}

// httpGrace is how long the server waits for the last answers to be read.
const httpGrace = 2 * time.Second

// drain takes nothing new, waits for what runs, and ends. Who sees that nothing
// new is taken has been told what is waited for.
func (a *app) drain(s *server.Service, api *httpapi.API) error {
	if n := s.Stats().Runs.Active; n > 0 {
		a.announce(fmt.Sprintf("shutting down: waiting up to %s for %d runs; a second signal ends at once", a.config.drain, n))
	}
	api.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), a.config.drain)
	defer cancel()
	err := s.Close(ctx)
	ctx, cancel = context.WithTimeout(context.Background(), httpGrace)
	defer cancel()
	if api.Shutdown(ctx) != nil {
		a.logger().Info("connections closed that were still in use")
	}
	return err
}

// announce tells what an operator wants to know at any log level.
func (a *app) announce(text string, attrs ...any) { a.announceAs(slog.LevelInfo, text, attrs...) }

// announceAs announces what a log in JSON has under this level.
func (a *app) announceAs(level slog.Level, text string, attrs ...any) {
	if a.config.logFormat != "json" {
		a.notef("toolhost: %s", text)
		return
	}
	record := slog.NewRecord(time.Now(), level, text, 0)
	record.Add(attrs...)
	_ = a.logger().Handler().Handle(context.Background(), record)
}
