package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/mcpapi"
)

func (a *app) mcp() *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the tools over the Model Context Protocol on stdin and stdout",
		Long: `Serve the tools over the Model Context Protocol on stdin and stdout, in every
revision of the protocol. Background runs and tasks are kept in the data folder:
a client that starts this command anew finds them, under the same session.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openFree(cmd.Context())
			if err != nil {
				return err
			}
			defer a.closeService(cmd.Context(), s)
			var in io.Reader // nil is the process's own, which is closed to end a read
			if a.in != os.Stdin {
				in = a.in
			}
			signal.Ignore(syscall.SIGPIPE) // a client that goes away ends the session, not the process
			for _, p := range s.Problems() {
				a.notef("toolhost: problem: %s", p)
			}
			return mcpapi.Run(cmd.Context(), s, mcpapi.Config{Version: version(), Session: session, In: in, Out: a.out, Logger: a.logger()})
		},
	}
	cmd.Flags().StringVar(&session, "session", mcpapi.DefaultSession, "`name` whose runs the client sees")
	return cmd
}
