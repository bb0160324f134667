package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

func approveCommand(a *app) *cobra.Command {
	var in wire.Decide
	var deny, kept, show bool
	var revoke, session, keep string
	cmd := &cobra.Command{
		Use:   "approve [ID]",
		Short: "Show the calls that wait for approval, approve one, or refuse it",
		Long: `Show the calls that wait for approval, approve one, or refuse it.

Calls wait if approve is ask in the configuration. An approved call runs in the
background, with what its plugin may use now: if the plugin or its grants have
changed since it was shown, the decision is refused. --keep also approves later calls
of the tool by the same caller, as long as its plugin's file and grants stay the same:
with the same arguments in this session, all in this session, or all. What is kept for a
session expires after a day.`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := cmd.Flags()
	flags.BoolVar(&deny, "deny", false, "refuse the call")
	flags.StringVar(&in.Reason, "reason", "", "say why it is refused, for the agent")
	flags.StringVar(&keep, "keep", "", "approve later calls of the tool too: with the same `arguments` in this session, in this session, or always")
	flags.BoolVar(&show, "show", false, "show the call with all its arguments, and decide nothing")
	flags.BoolVar(&kept, "kept", false, "show the approvals that are kept")
	flags.StringVar(&revoke, "revoke", "", "revoke the kept approval of a `tool`")
	flags.StringVar(&session, "of", "", "with --revoke: the `session` that it was kept for")
	flags.Bool("dry-run", false, "decide nothing")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		switch {
		case keep != "" && !slices.Contains([]wire.Keep{wire.KeepArguments, wire.KeepSession, wire.KeepAlways}, wire.Keep(keep)):
			return &usageError{fmt.Errorf("--keep: expected arguments, session or always, found %q", keep), ""}
		case len(args) == 0 && (deny || show || keep != "" || in.Reason != ""):
			return &usageError{errors.New("--deny, --show, --reason and --keep need the id of a call"), "toolhost approve lists the calls that wait"}
		case deny && keep != "":
			return &usageError{errors.New("--deny and --keep exclude each other"), ""}
		case revoke != "":
			return r.revoke(ctx, session, revoke)
		case kept:
			return r.listKept(ctx)
		case len(args) == 0:
			return r.listApprovals(ctx)
		}
		w, err := r.findApproval(ctx, args[0])
		switch {
		case err != nil:
			return err
		case show:
			return r.answer(w, nil, func() { r.printApproval(w, len(w.Args)) })
		}
		in.Approve, in.Keep = !deny, wire.Keep(keep)
		return r.decide(ctx, w, in)
	})
}

// revoke removes the kept approvals for a tool in a session, or in all sessions if
// session is empty.
func (r *remote) revoke(ctx context.Context, session, tool string) error {
	revoked := wire.KeptApprovals{Kept: []wire.KeptApproval{}}
	var elsewhere []string
	err := r.each(func(c *client.Client) error {
		kept, err := c.Approvals().Kept(ctx)
		if err != nil {
			return err
		}

		found := len(revoked.Kept)
		for _, k := range kept {
			switch {
			case k.Tool == tool && k.Session == session:
				revoked.Kept = append(revoked.Kept, k)
			case k.Tool == tool:
				elsewhere = append(elsewhere, k.Session)
			}
		}
		if len(revoked.Kept) == found {
			return nil
		}
		return c.Approvals().Revoke(ctx, session, tool)
	})
	if err == nil && len(revoked.Kept) == 0 {
		return nothingKept(session, tool, elsewhere)
	}
	return r.answer(revoked, err, func() {
		for _, k := range revoked.Kept {
			r.printf("revoked: %s for %s\n", keptRow(k)[0], cmp.Or(oneLine(k.Session), "all sessions"))
		}
	})
}

// nothingKept is the error of revoking an approval that is not kept for a session.
// elsewhere lists the sessions that it is kept for.
func nothingKept(session, tool string, elsewhere []string) error {
	err := &wire.Problem{Code: wire.CodeNotFound, Detail: fmt.Sprintf("no approval of %s is kept for %s", oneLine(tool), cmp.Or(oneLine(session), "all sessions"))}
	switch {
	case len(elsewhere) == 0:
		return &hintError{err, "toolhost approve --kept shows the approvals that are kept"}
	case elsewhere[0] == "":
		return &hintError{err, "it is kept for all sessions: leave out --of"}
	}
	return &hintError{err, fmt.Sprintf("it is kept for session %s: add --of %[1]s", oneLine(elsewhere[0]))}
}

// findApproval returns a waiting call, and makes r talk to the server that the call
// waits on.
func (r *remote) findApproval(ctx context.Context, id string) (found wire.WaitingCall, err error) {
	if err := checkRun(id); err != nil {
		return found, err
	}

	var missing *wire.Problem
	err = r.each(func(c *client.Client) error {
		w, err := c.Approvals().Get(ctx, id)
		if errors.As(err, &missing) && missing.Code == wire.CodeNotFound {
			return nil
		}
		if err == nil {
			found, r.client = w, c
		}
		return err
	})
	if err == nil && found.TaskID == "" {
		err = missing
	}
	return found, err
}

// decide decides on a waiting call, as it was shown.
func (r *remote) decide(ctx context.Context, w wire.WaitingCall, in wire.Decide) error {
	if in.Approve {
		in.Fingerprint = w.Fingerprint
		r.notef("%s", oneLine(fmt.Sprintf("toolhost: %s %s, may use: %s", w.Tool, short(w.Args, maxShownArgs), cmp.Or(strings.Join(w.Grants, ", "), "-"))))
	}
	run, err := r.client.Approvals().Decide(ctx, w.TaskID, in)
	return r.reply(run, err, func() {
		did := "approved"
		if !in.Approve {
			did = "refused"
		}
		r.printf("%s: %s\n", did, w.TaskID)
	})
}

// waiting returns the waiting calls of all servers.
func (r *remote) waiting(ctx context.Context) ([]wire.WaitingCall, error) {
	all := []wire.WaitingCall{}
	err := r.each(func(c *client.Client) error {
		waiting, err := c.Approvals().Waiting(ctx)
		all = append(all, waiting...)
		return err
	})
	return all, err
}

func (r *remote) listApprovals(ctx context.Context) error {
	waiting, err := r.waiting(ctx)
	return r.reply(wire.Approvals{Approvals: waiting}, err, func() {
		if len(waiting) == 0 {
			r.printf("Nothing waits for approval.\n")
		}
		for _, w := range waiting {
			r.printApproval(w, maxShownArgs)
		}
	})
}

// maxShownArgs is how many characters of the arguments are shown without --show.
const maxShownArgs = 1000

// printApproval prints a waiting call, with up to most characters of its arguments.
func (r *remote) printApproval(w wire.WaitingCall, most int) {
	changed := ""
	if w.Changed {
		changed = ", its plugin has changed since: it can only be refused"
	}
	caller := ""
	if w.Caller != "" {
		caller = ", called by " + oneLine(w.Caller)
	}
	r.printf("%s  %s%s  session %s, since %s%s\n", w.TaskID, oneLine(w.Tool), caller, oneLine(w.Session), dateTime(w.AskedAt), changed)
	r.printf("  arguments  %s\n", short(oneLine(w.Args), most))
	if w.ArgsCut || len(w.Args) > most {
		r.printf("             of %d bytes (SHA-256 %s): --show shows all\n", w.ArgsBytes, w.ArgsDigest)
	}
	if w.ArgsIncomplete {
		r.printf("             without secret ones, which are not stored: the call ends if its caller leaves\n")
	}
	r.printf("  may use    %s\n", oneLine(cmp.Or(strings.Join(w.Grants, ", "), "-")))
	r.printf("  plugin     %s %s, %s\n", oneLine(cmp.Or(w.Plugin, "-")), oneLine(w.PluginVersion), short(w.ToolVersion, 12))
}

func (r *remote) listKept(ctx context.Context) error {
	kept := []wire.KeptApproval{}
	err := r.each(func(c *client.Client) error {
		more, err := c.Approvals().Kept(ctx)
		kept = append(kept, more...)
		return err
	})
	return r.reply(wire.KeptApprovals{Kept: kept}, err, func() {
		rows := [][]string{{"TOOL", "SESSION", "BY", "SINCE", "IN FORCE"}}
		for _, k := range kept {
			rows = append(rows, keptRow(k))
		}
		r.list(rows, "No approval is kept.")
	})
}

// keptRow returns the row for a kept approval in a table.
func keptRow(k wire.KeptApproval) []string {
	tool := k.Tool
	if k.Caller != "" {
		tool += ", called by " + k.Caller
	}
	if k.ArgsDigest != "" {
		tool += ", arguments " + short(k.ArgsDigest, 12)
	}

	inForce := "yes"
	switch {
	case !k.InForce:
		inForce = "no: the plugin or its grants have changed, or its connection has ended"
	case !k.ExpiresAt.IsZero():
		inForce = "until " + dateTime(k.ExpiresAt)
	}

	return []string{oneLine(tool), cmp.Or(k.Session, "all"), k.By, dateTime(k.At), inForce}
}
