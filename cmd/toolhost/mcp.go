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
revision of the protocol. Background runs and tasks are kept in the data folder:
a client that starts this command anew finds them, under the same session.

Plugins that are added, replaced or removed are taken up while it runs (unless
watch is false), and on SIGHUP, and the client is told.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openFree(cmd.Context())
			if err != nil {
				return err
			}
			defer a.closeService(cmd.Context(), s)
			defer a.reloadOnHangup(s)()
			var in io.Reader // nil is the process's own, which is closed to end a read
			if a.in != os.Stdin {
				in = a.in
			}
			signal.Ignore(syscall.SIGPIPE) // a client that goes away ends the session, not the process
			a.warnOf(fileProblems(s.Problems()))
			return mcpapi.Run(cmd.Context(), s, mcpapi.Config{Version: version(), Session: session, In: in, Out: a.out, Logger: a.logger()})
		},
	}
	cmd.Flags().StringVar(&session, "session", wire.DefaultSession, "`name` whose runs the client sees")
	return cmd
}

// maxMCP is how many processes that speak MCP can keep runs in one data folder.
const maxMCP = 16

// mcpFolder is where the nth process that speaks MCP keeps its runs. None takes
// that of serve, which has to find it free.
func (a *app) mcpFolder(n int) string {
	if n == 1 {
		return filepath.Join(a.config.data, "mcp")
	}
	return filepath.Join(a.config.data, fmt.Sprintf("mcp-%d", n))
}

// openFree opens the service on the first of these folders that no other
// process uses: each client of MCP may start a process of its own.
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
			return nil, &usageError{fmt.Errorf("%d processes of toolhost mcp keep runs in %s already", n, a.config.data), "end some of them, or choose another folder with --data"}
		}
	}
}
