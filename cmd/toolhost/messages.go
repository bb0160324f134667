package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

func messageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "message RUN JSON|TEXT|@FILE|-",
		Short: "Send a message to a background run whose tool reads messages",
		Long: `Send a message to an active background run of a server. What is not JSON is sent
as a JSON string. The tool reads messages in the order in which they were sent.
toolhost check shows how many it has not read yet.`,
		Example: `  toolhost message bg_… '{"finish":true}'
  toolhost message bg_… 'leave out the appendix'
  toolhost message bg_… @page.txt`,
		Args: cobra.ExactArgs(2),
	}
	cmd.Flags().Bool("dry-run", false, "make the checks, and send nothing")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		if err := checkRun(args[0]); err != nil {
			return err
		}
		text, err := r.source(ctx, args[1])
		if err != nil {
			return err
		}
		if len(text) == 0 {
			return &usageError{errors.New("the message is empty"), `give JSON or text, such as '{"finish":true}'`}
		}

		sent, err := r.client.Send(ctx, args[0], wire.MessageOf(string(text)))
		return r.reply(sent, err, func() {
			if sent.ID == 0 {
				r.printf("would be sent to %s\n", args[0])
				return
			}
			r.printf("message %d sent to %s\n", sent.ID, args[0])
		})
	})
}

// maxFamily is the maximum number of a run's children that are printed.
const maxFamily = 10

// printFamily prints a run's children, and the number of messages that its tool has not
// read. It leaves out whatever the server does not support.
func (r *remote) printFamily(ctx context.Context, run wire.Run) {
	if !run.Status.Terminal() {
		if waiting, err := r.client.Messages(ctx, run.TaskID); err == nil && len(waiting) > 0 {
			r.printf("  messages that are not read yet: %d, the first of %s\n", len(waiting), when(waiting[0].SentAt))
		}
	}

	if called, err := r.client.RunCalls(ctx, run.TaskID); err == nil { // an older server has none
		r.printCalls(called)
	}
	children, err := r.client.Runs(ctx, client.RunQuery{Parent: run.TaskID, Limit: maxFamily})
	if err != nil || len(children.Runs) == 0 {
		return
	}
	more := ""
	if children.Next != "" {
		more = fmt.Sprintf(", the newest %d", maxFamily)
	}
	r.printf("  child runs%s:\n", more)
	for _, child := range slices.Backward(children.Runs) {
		r.printf("    %s %s %q (%s): %s\n", icon(child.Status), child.TaskID, oneLine(child.Title), oneLine(child.Tool), state(child))
	}
}
