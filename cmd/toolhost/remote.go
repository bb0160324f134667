package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

// remote is the state of a command that talks to a running server.
type remote struct {
	*ui
	client *client.Client   // client of serve, or of the server at the configured address
	all    []*client.Client // client and, unless an address is configured, clients of all toolhost mcp processes

	inSession func(name string) (*client.Client, error) // returns a client of the same server in another session
}

// remote turns a command into one that talks to a running server.
func (a *app) remote(cmd *cobra.Command, run func(ctx context.Context, r *remote, args []string) error) *cobra.Command {
	flags := cmd.Flags()
	flags.String("addr", "", "`address` of the server: host:port, a URL or the path of a socket (default: the socket of the data folder)")
	flags.String("session", wire.DefaultSession, "session of the runs")
	flags.Bool("json", false, "print JSON")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.dial(flags)
		if err != nil {
			return err
		}
		defer r.close()
		return run(cmd.Context(), r, args)
	}
	return cmd
}

// dial returns the servers for the configuration and the flags of a remote command: the
// server at the address, or the servers that use the data folder.
func (a *app) dial(flags *pflag.FlagSet) (*remote, error) {
	addresses := []string{a.config.addr}
	if a.config.addr == "" && a.config.data == "" {
		return nil, errNoData
	}
	if a.config.addr == "" {
		addresses = a.config.sockets()
		for i, socket := range addresses {
			addresses[i] = "unix:" + socket
		}
	}
	token, err := a.config.clientToken()
	if err != nil {
		return nil, err
	}

	session, _ := flags.GetString("session")
	dry, _ := flags.GetBool("dry-run") // false for a command without it
	open := func(address, session string) (*client.Client, error) {
		return client.New(address, client.Options{Token: token, ApprovalToken: a.config.approvalToken, Session: session, DryRun: dry})
	}
	var all []*client.Client
	for _, address := range addresses {
		c, err := open(address, session)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	inSession := func(name string) (*client.Client, error) { return open(addresses[0], name) }
	return &remote{&a.ui, all[0], all, inSession}, nil
}

func (r *remote) close() {
	for _, c := range r.all {
		c.Close()
	}
}

// each calls f with a client of each running server. If there is none, it returns an error.
func (r *remote) each(f func(c *client.Client) error) error {
	var away error
	reached := false
	for _, c := range r.all {
		err := f(c)
		switch {
		case err == nil:
			reached = true
		case !errors.As(err, new(*client.Unreachable)):
			return err
		case away == nil:
			away = err
		}
	}
	if reached {
		return nil
	}
	return away
}

// checkRun refuses texts that cannot be ids of runs, without making a request.
func checkRun(ids ...string) error {
	for _, id := range ids {
		if !wire.IsRunID(id) {
			return &usageError{fmt.Errorf("%q is not a run id", id), "toolhost tasks shows the ids"}
		}
	}
	return nil
}

// follow shows the output and the progress of a run until it has ended.
func (r *remote) follow(ctx context.Context, id string, progress *bar, shown *output, take func(wire.Output)) (wire.Run, error) {
	defer progress.clear()
	defer shown.end()
	return r.client.Follow(ctx, id, client.Follower{Output: take, Run: progress.setRun, Away: progress.away})
}

// away shows that the command is waiting for a server that has gone away.
func (b *bar) away(err error) {
	b.clear()
	b.notef("toolhost: %v; waiting for it to come back", err)
}

// runError is the error for a run that did not succeed.
type runError struct{ run wire.Run }

func (e *runError) Error() string {
	run := e.run
	switch {
	case run.Error != nil:
		return fmt.Sprintf("%s failed (%s): %s", run.TaskID, run.Error.Kind, oneLine(run.Error.Message))
	case run.Stopping != nil && run.Stopping.Reason != "":
		return fmt.Sprintf("%s was canceled by %s: %s", run.TaskID, run.Stopping.By, oneLine(run.Stopping.Reason))
	}
	return run.TaskID + " was canceled"
}

// code returns the exit code and the error code for the run.
func (e *runError) code() (exit int, code string) {
	if e.run.Error == nil {
		return exitToolError, string(e.run.Status)
	}

	switch kind := e.run.Error.Kind; kind {
	case wire.KindFuelExhausted, wire.KindMemoryLimit, wire.KindOutputLimit, wire.KindTimeout, wire.KindLimit:
		return exitLimit, string(kind)
	case wire.KindRejected:
		return exitDenied, string(kind)
	default:
		return exitToolError, string(kind)
	}
}

// hint names the command that shows why a run broke, unless the error already says it.
func (e *runError) hint() string {
	if e.run.Error == nil || e.run.Error.Kind != wire.KindTrap && e.run.Error.Kind != wire.KindInternal {
		return ""
	}
	return commandFor("check", e.run) + " shows why"
}

// commandFor returns the command line of a command about a run.
func commandFor(command string, run wire.Run) string {
	text := "toolhost " + command + " " + run.TaskID
	if run.Session != wire.DefaultSession {
		text += " --session " + oneLine(run.Session)
	}
	return text
}

// outcome returns an error for the first run that ended without success, or for missing runs.
func outcome(found wire.Runs) error {
	for _, run := range found.Runs {
		if run.Done && run.Status != wire.StatusSucceeded {
			return &runError{run}
		}
	}
	return missing(found)
}

func missing(found wire.Runs) error {
	if len(found.Missing) == 0 {
		return nil
	}
	return &wire.Problem{Code: wire.CodeNotFound, Detail: "no such background run in this session: " + strings.Join(found.Missing, ", ")}
}

var icons = map[wire.Status]string{
	wire.StatusQueued: "○", wire.StatusRunning: "●", wire.StatusWaiting: "◷", wire.StatusSucceeded: "✓", wire.StatusFailed: "✗", wire.StatusCanceled: "■",
}

// icon returns the symbol for a state in a table.
func icon(s wire.Status) string { return cmp.Or(icons[s], "?") }

// state describes a run's status in a few words.
func state(run wire.Run) string {
	text := string(run.Status)
	switch {
	case run.Error != nil:
		text += fmt.Sprintf(" (%s)", run.Error.Kind)
	case run.Stopping != nil && !run.Done:
		text += ", stopping"
	case run.Status == wire.StatusQueued && run.Held != "":
		text = "waits for " + run.Held
	case !run.WaitsUntil.IsZero():
		text += " until " + when(run.WaitsUntil)
	}

	if run.Unsaved {
		text += ", not stored yet"
	}
	return text
}

// doing returns what an active run is doing, and nothing for other runs.
func doing(run wire.Run) string {
	if run.Done {
		return ""
	}

	var parts []string
	if p := run.Progress; p != nil {
		switch {
		case p.Total > 0:
			parts = append(parts, fmt.Sprintf("%.0f%%", 100*min(p.Done/p.Total, 1)))
		case p.Done > 0:
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s", strconv.FormatFloat(p.Done, 'f', -1, 64), p.Unit)))
		}
		if p.Message != "" {
			parts = append(parts, p.Message)
		}
	}

	if run.Detail != "" {
		if len(parts) > 0 {
			parts = append(parts, "·")
		}
		parts = append(parts, run.Detail)
	}
	return oneLine(strings.Join(parts, " "))
}

// elapsed formats a duration in seconds for people: 12.3s, 2.1m, 1.5h.
func elapsed(seconds float64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%.1fs", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%.1fm", seconds/60)
	}
	return fmt.Sprintf("%.1fh", seconds/3600)
}

// when formats a time for people, in their own time zone.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// setRun shows the progress of a run.
func (b *bar) setRun(run wire.Run) {
	if p := run.Progress; p != nil {
		b.set(p.Done, p.Total, p.Message)
	}
}

// questions calls f for each question that a run asks its user.
func questions(run wire.Run, f func(key, text string)) {
	for _, key := range slices.Sorted(maps.Keys(run.Questions)) {
		f(key, oneLine(run.Questions[key].Message))
	}
}

// clientToken returns the token for the current address. It is empty if there is none, and
// also for a socket, which needs no token.
//
// A token is sent only to the address that it was given for. A token in a file is for the
// address in the same file. A token in the environment is for an address that comes from a
// flag, the environment, or the user's own configuration. So a file written by somebody else
// can choose the server, but that server does not get the user's token.
func (c *loadedConfig) clientToken() (string, error) {
	if c.token == "" || c.addr == "" {
		return "", nil
	}
	to, err := urlOfServer(c.addr)
	if to == "" || err != nil {
		return "", err
	}

	given := c.givenFor()
	if from, err := urlOfServer(given); err == nil && from == to {
		return c.token, nil
	}

	return "", &usageError{
		fmt.Errorf("the token of %s is not sent to %s, the addr of %s: it was given for %s", c.source("token"), c.addr, c.source("addr"), cmp.Or(given, "no address")),
		"write addr into the same file, or set TOOLHOST_TOKEN together with --addr or TOOLHOST_ADDR",
	}
}

// urlOfServer returns the URL for an address, and nothing for a socket.
func urlOfServer(address string) (string, error) {
	c, err := client.New(address, client.Options{})
	if err != nil {
		return "", err
	}
	return c.URL(), nil
}

// givenFor returns the address named by the source that the token comes from.
func (c *loadedConfig) givenFor() (given string) {
	token := c.values["token"]
	for _, layer := range c.layers {
		addr, ok := layer["addr"]
		switch {
		case !ok:
		case token.from == byHand && addr.from != namedFile, addr.source == token.source:
			given, _ = addr.raw.(string)
		}
	}
	return given
}
