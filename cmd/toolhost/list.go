package main

import (
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

func (a *app) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the tools, where they are from, and what could not be loaded",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(400) // what loading leaves is gone with the process
			s, done, err := a.open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer done()
			unread, err := plugins.ReadDigests(cmd.Context(), s.Plugins())
			if err != nil {
				return err
			}
			problems := append(s.Problems(), unread...)
			if a.json {
				a.printJSON(listing(s.Tools(), problems))
				return nil
			}
			a.printList(s.Tools(), problems)
			return nil
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// listed is one tool of list --json.
type listed struct {
	Name        string             `json:"name"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description"`
	Plugin      string             `json:"plugin"`
	Version     string             `json:"version"`
	File        string             `json:"file"`
	Digest      string             `json:"digest"`
	Pinned      bool               `json:"pinned,omitempty"`
	Hints       abi.Hints          `json:"hints"`
	Annotations server.Annotations `json:"annotations"`
	Grants      []string           `json:"grants"`
	Missing     []string           `json:"missing_grants,omitempty"`
}

// fileProblem is one problem, as JSON.
type fileProblem struct {
	File  string `json:"file"`
	Error string `json:"error"`
}

func problemsOf(problems []plugins.Problem) []fileProblem {
	out := make([]fileProblem, len(problems))
	for i, p := range problems {
		out[i] = fileProblem{p.File, p.Err.Error()}
	}
	return out
}

func listing(tools []*plugins.Tool, problems []plugins.Problem) any {
	out := struct {
		Tools    []listed      `json:"tools"`
		Problems []fileProblem `json:"problems"`
	}{[]listed{}, problemsOf(problems)}
	for _, t := range tools {
		p := t.Plugin
		digest, _ := p.Digest() // else it is among the problems
		out.Tools = append(out.Tools, listed{
			Name: t.Name, Title: t.Tool.Title, Description: t.Tool.Description,
			Plugin: p.Manifest.Name, Version: p.Manifest.Version, File: p.File, Digest: digest, Pinned: p.Pinned(),
			Hints: t.Tool.Hints, Annotations: server.Annotate(t), Grants: p.Grant.Names(), Missing: p.Missing,
		})
	}
	return out
}

func (a *app) printList(tools []*plugins.Tool, problems []plugins.Problem) {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	write := func(columns ...string) { _, _ = w.Write([]byte(strings.Join(columns, "\t") + "\n")) }
	if len(tools) > 0 {
		write("TOOL", "HINTS", "PLUGIN", "DIGEST", "GRANTS", "DESCRIPTION")
	}
	for _, t := range tools {
		p := t.Plugin
		digest, _ := p.Digest()
		digest = dash(digest[:min(len(digest), 12)])
		if p.Pinned() {
			digest += " pinned"
		}
		grants := strings.Join(p.Grant.Names(), ", ")
		if len(p.Missing) > 0 {
			grants = "MISSING: " + strings.Join(p.Missing, ", ")
		}
		write(t.Name, hints(t), p.Manifest.Name+" "+p.Manifest.Version, digest, dash(grants), short(t.Tool.Description, 60))
	}
	_ = w.Flush()
	if len(tools) == 0 {
		a.notef("no tools in %s", strings.Join(a.config.plugins, ", "))
	}
	a.tellProblems(problems)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// hints are those of a tool, in short.
func hints(t *plugins.Tool) string {
	var names []string
	h := t.Tool.Hints
	for _, hint := range []struct {
		on   bool
		name string
	}{
		{h.SupportsBackground, "background"}, {h.Readonly, "readonly"}, {h.Idempotent, "idempotent"},
		{h.LongRunning, "long"}, {h.Concurrency == abi.Serial, "serial"}, {t.Tool.Approval == abi.ApprovalRequired, "approval"},
	} {
		if hint.on {
			names = append(names, hint.name)
		}
	}
	return dash(strings.Join(names, ","))
}
