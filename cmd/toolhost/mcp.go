package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
	"github.com/toolhost/toolhost/server/wire"
)

func mcpCommand(a *app) *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the tools over the Model Context Protocol on stdin and stdout",
		Long: `Serve the tools over the Model Context Protocol on stdin and stdout, in every
revision of the protocol. Background runs and tasks are kept in the data folder: a
client that starts this command again finds them under the same session.

Plugins that are added, replaced or removed are reloaded while it runs (unless
watch is false), and on SIGHUP. The client is notified.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runMCP(cmd.Context(), session) },
	}
	cmd.Flags().StringVar(&session, "session", wire.DefaultSession, "`name` of the session whose runs the client sees")
	return cmd
}

func (a *app) runMCP(ctx context.Context, session string) error {
	s, err := a.openFree(ctx)
	if err != nil {
		return err
	}
	defer a.closeService(ctx, s)
	defer a.reloadOnHangup(s)()

	var in io.Reader // nil is the process's own, which can be closed to end a read
	if a.in != os.Stdin {
		in = a.in
	}
	signal.Ignore(syscall.SIGPIPE) // a client that goes away ends the session, not the process
	a.warnOf(fileProblems(s.Problems()))
	return mcpapi.Run(ctx, s, mcpapi.Config{Version: version(), Session: session, In: in, Out: a.out, Logger: a.logger()})
}

// maxMCP is how many processes of toolhost mcp can keep runs in one data folder.
const maxMCP = 16

// mcpFolder is where the nth of these processes keeps its runs. The folder of
// serve stays free for serve.
func (a *app) mcpFolder(n int) string {
	if n == 1 {
		return filepath.Join(a.config.data, "mcp")
	}
	return filepath.Join(a.config.data, fmt.Sprintf("mcp-%d", n))
}

// openFree opens the service on the first of these folders that no other process
// uses: each MCP client may start a process of its own.
func (a *app) openFree(ctx context.Context) (*server.Service, error) {
	for n := 1; ; n++ {
		s, err := a.openKept(ctx, a.mcpFolder(n), false)
		switch {
		case err == nil:
			a.logger().Info("runs are kept", "folder", a.mcpFolder(n))
			return s, nil
		case !errors.Is(err, background.ErrLocked):
			return nil, err
		case n == maxMCP:
			return nil, &usageError{fmt.Errorf("%d processes of toolhost mcp already keep runs in %s", n, a.config.data), "end some of them, or choose another folder with --data"}
		}
	}
}
