package main

import (
	"context"

	"github.com/spf13/cobra"
)

func healthCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check that a server is ready, for supervisors and containers",
		Long: `Check that a server is ready: it takes calls, and its storage works. The exit code
is 0 if it is. Containers without a shell can use this command as their health check.`,
		Args: cobra.NoArgs,
	}
	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) error {
		err := r.client.Do(ctx, "GET", "/readyz", nil, nil)
		return r.reply(map[string]bool{"ready": true}, err, func() { r.printf("ready\n") })
	})
}
