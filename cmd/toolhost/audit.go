package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

// auditFolder returns the folder for the audit log of a service that keeps its
// runs in folder.
func auditFolder(data, folder string) string {
	name, err := filepath.Rel(data, folder)
	if err != nil {
		name = filepath.Base(folder)
	}
	return filepath.Join(data, "audit", strings.ReplaceAll(name, string(filepath.Separator), "-"))
}

func auditCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check or show the audit log",
		Long: `Check or show the audit log: what was called, granted, refused, reached and changed.
The log of serve is in the folder audit/runs of the data folder.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(auditVerifyCommand(a), auditTailCommand(a))
	return cmd
}

// auditDirs returns the log folders that a command is to read.
func (c *loadedConfig) auditDirs(args []string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	if c.data == "" {
		return nil, errNoData
	}
	found, err := filepath.Glob(filepath.Join(globbed(c.data), "audit", "*"))
	if err == nil && len(found) == 0 {
		err = &hintError{&wire.Problem{Code: wire.CodeNotFound, Detail: "there is no audit log in " + oneLine(c.data)}, "toolhost serve begins one, unless audit.enabled is false"}
	}
	return found, err
}

// globbed returns a pattern that matches only this path.
func globbed(path string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(path)
}

func auditVerifyCommand(a *app) *cobra.Command {
	var head string
	cmd := &cobra.Command{
		Use:   "verify [FOLDER…]",
		Short: "Check that no line of the audit log was changed, inserted or removed",
		Long: `Check that no line of the audit log was changed, inserted or removed. Without a
folder, all logs of the data folder are checked.

Lines that were removed from the end, and a log that was made anew, are found with
--head: the number and the hash of a line that you keep elsewhere, as verify prints
them and serve logs them.

Exit codes: 0 in order, 1 broken, 5 no log.`,
	}
	cmd.Flags().StringVar(&head, "head", "", "`NUMBER:HASH` of a line that the log must have")
	cmd.Flags().Bool("json", false, "print JSON")

	cmd.RunE = func(_ *cobra.Command, args []string) error {
		known, err := parseHead(head)
		if err != nil {
			return err
		}
		dirs, err := a.config.auditDirs(args)
		if err != nil {
			return err
		}
		if known != (audit.Head{}) && len(dirs) != 1 {
			return &usageError{errors.New("--head needs the folder of one log"), strings.Join(dirs, ", ")}
		}

		reports := map[string]audit.Report{}
		var errs []error
		for _, dir := range dirs {
			r, err := audit.Verify(dir, known)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", dir, err))
				continue
			}
			reports[dir] = r
		}
		return a.answer(reports, errors.Join(errs...), func() {
			for _, dir := range dirs {
				if r, ok := reports[dir]; ok {
					a.printf("%s: in order: %s\n", dir, reportText(r))
				}
			}
		})
	}
	return cmd
}

// reportText formats the report on a log as one line.
func reportText(r audit.Report) string {
	text := fmt.Sprintf("%d lines in %d files, from %d to %d:%s", r.Lines, r.Files, r.First, r.Head.Seq, r.Head.Hash)
	if r.First > 1 {
		text += ", older ones were removed"
	}
	if r.Torn > 0 {
		text += fmt.Sprintf(", %d cut as the host died", r.Torn)
	}
	if r.Lost > 0 {
		text += fmt.Sprintf(", %d events could not be written", r.Lost)
	}
	return text
}

// parseHead parses the number and the hash of a line in a log.
func parseHead(text string) (h audit.Head, err error) {
	if text == "" {
		return h, nil
	}
	number, hash, _ := strings.Cut(text, ":")
	h.Hash = hash
	if h.Seq, err = strconv.ParseInt(number, 10, 64); err != nil || len(hash) != 64 {
		return h, &usageError{fmt.Errorf("--head: expected NUMBER:HASH, found %q", text), "toolhost audit verify prints them"}
	}
	return h, nil
}

func auditTailCommand(a *app) *cobra.Command {
	var q audit.Query
	var kinds []string
	cmd := &cobra.Command{
		Use:   "tail [FOLDER…]",
		Short: "Show the latest events of the audit log",
	}
	flags := cmd.Flags()
	flags.IntVarP(&q.Limit, "limit", "n", 20, "show at most this `number` of events")
	flags.StringSliceVar(&kinds, "kind", nil, "show only events of this `kind`, such as call, egress or refused; may be repeated")
	flags.StringVar(&q.Session, "session", "", "show only events of this session")
	flags.StringVar(&q.Tool, "tool", "", "show only events of this tool")
	flags.StringVar(&q.Plugin, "plugin", "", "show only events of this plugin")
	flags.StringVar(&q.ID, "id", "", "show only events of this call, run or schedule")
	flags.Bool("json", false, "print JSON")

	cmd.RunE = func(_ *cobra.Command, args []string) error {
		for _, k := range kinds {
			q.Kinds = append(q.Kinds, audit.Kind(k))
		}
		dirs, err := a.config.auditDirs(args)
		if err != nil {
			return err
		}
		events := []audit.Event{}
		for _, dir := range dirs {
			if _, err := os.Stat(dir); err != nil {
				return err
			}
			found, err := audit.Read(dir, q)
			if err != nil {
				return err
			}
			events = append(events, found...)
		}
		newest(events)
		events = events[max(0, len(events)-q.Limit):]
		return a.answer(events, nil, func() {
			for _, e := range events {
				a.printf("%s\n", oneLine(eventText(e)))
			}
		})
	}
	return cmd
}

// newest sorts events by time, newest last.
func newest(events []audit.Event) {
	slices.SortFunc(events, func(x, y audit.Event) int { return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Seq, y.Seq)) })
}

// eventText formats an event as one line.
func eventText(e audit.Event) string {
	words := []string{e.At.Local().Format(time.DateTime), string(e.Kind)}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+value)
		}
	}

	if e.Action != string(e.Kind) {
		add("", e.Action)
	}
	add("", e.Tool)
	add("", e.Outcome)
	add("code=", e.Code)
	add("", e.Method)
	add("", e.Host)
	if e.Status != 0 {
		add("status=", strconv.Itoa(e.Status))
	}

	add("plugin=", e.Plugin)
	add("session=", e.Session)
	add("by=", e.By)
	add("id=", e.ID)
	if e.Fuel != 0 {
		add("fuel=", strconv.FormatInt(e.Fuel, 10))
	}
	if e.Millis != 0 {
		add("ms=", strconv.FormatInt(e.Millis, 10))
	}

	if e.Count > 0 {
		add("count=", strconv.FormatInt(e.Count, 10))
	}
	add("", strings.Join(e.Names, ", "))
	add("", e.Reason)
	return strings.Join(words, "  ")
}
