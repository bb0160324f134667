package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/wire"
)

func hostsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hosts",
		Short: "List the servers that share their runs, and the plugins that differ between them",
		Long: `List the servers that share an engine for background runs, as any of them knows them, and the
plugins that are not the same on all of them. A server that was killed is listed as
lost until the others have taken its runs over. One that was shut down is not listed.`,
		Args: cobra.NoArgs,
	}
	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) error {
		found, err := r.client.Hosts(ctx)
		return r.reply(found, err, func() { r.printHosts(found) })
	})
}

func (r *remote) printHosts(found wire.Hosts) {
	rows := [][]string{{"HOST", "NAME", "VERSION", "SINCE", "HEARTBEAT", "RUNNING", "PLUGINS", "STATE"}}
	for _, h := range found.Hosts {
		state := string(h.State)
		if h.Self {
			state += ", this one"
		}
		beat := time.Since(h.RenewedAt).Round(time.Second)
		rows = append(rows, []string{
			h.HostID, short(cmp.Or(h.Name, "-"), 40), short(cmp.Or(h.Version, "-"), 24), dateTime(h.Since), max(0, beat).String() + " ago",
			fmt.Sprintf("%d of %d", h.Running+h.Claimed, h.PerHost), fmt.Sprint(len(h.Plugins)), state,
		})
	}
	r.table(rows)

	for _, d := range found.Differences {
		r.printf("\n%s differs:\n", d.Plugin)
		for _, b := range d.Builds {
			r.printf("  %s %.12s on %s\n", cmp.Or(b.Version, "-"), cmp.Or(b.Digest, "-"), strings.Join(b.Hosts, ", "))
		}
		if len(d.Missing) > 0 {
			r.printf("  missing on %s\n", strings.Join(d.Missing, ", "))
		}
	}
}
