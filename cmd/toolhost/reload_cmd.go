package main

import (
	"context"

	"github.com/spf13/cobra"
)

func reloadCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the server read its configuration and plugins again",
		Long: `Have the server read its configuration and its plugins again, as SIGHUP does, and
wait until that is done. It prints each setting that has changed, and those that need
a restart. What runs is not disturbed.

A configuration that a start would refuse changes nothing: the command prints every
reason, and exits with code 2. With --dry-run nothing changes either way.`,
		Example: `  toolhost reload --dry-run
  toolhost reload`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().Bool("dry-run", false, "say what would change in the configuration, and change nothing")
	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) error {
		done, err := r.client.Reload(ctx)
		return r.reply(done, err, func() {
			for _, line := range done.Lines() {
				r.printf("%s\n", oneLine(line))
			}
		})
	})
}
