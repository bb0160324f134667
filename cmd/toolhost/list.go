package main

import (
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

func listCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tools, their plugins, and plugins that could not be loaded",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(400) // the process ends soon
			s, done, err := a.open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer done()

			loaded, found, err := s.Catalog(cmd.Context())
			if err != nil {
				return err
			}
			tools, problems := listed(loaded), fileProblems(s.Problems())
			for _, p := range loaded {
				if p.Digest == "" { // its file cannot be read any more
					problems = append(problems, found[slices.IndexFunc(found, func(f wire.FileProblem) bool { return f.File == p.File })])
				}
			}
			if a.json {
				a.printJSON(listing{tools, problems})
				return nil
			}
			a.printList(tools)
			a.warnOf(problems)
			return nil
		},
	}

	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// listing is what list --json prints.
type listing struct {
	Tools    []listedTool       `json:"tools"`
	Problems []wire.FileProblem `json:"problems"`
}

// listedTool is a tool with the plugin it is from.
type listedTool struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description"`
	Plugin      string           `json:"plugin"`
	Version     string           `json:"version"`
	File        string           `json:"file"`
	Digest      string           `json:"digest"`
	Pinned      bool             `json:"pinned,omitempty"`
	Hints       abi.Hints        `json:"hints"`
	Annotations wire.Annotations `json:"annotations"`
	Grants      []string         `json:"grants"`
	Missing     []string         `json:"missing_grants,omitempty"`

	approval abi.Approval
}

// listed are the tools of plugins, by name.
func listed(plugins []wire.Plugin) []listedTool {
	out := []listedTool{}
	for _, p := range plugins {
		for _, t := range p.Tools {
			out = append(out, listedTool{
				t.Name, t.Title, t.Description, p.Name, p.Version, p.File, p.Digest, p.Pinned, t.Hints, t.Annotations, p.Grants, p.Missing, t.Approval,
			})
		}
	}

	slices.SortFunc(out, func(a, b listedTool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (a *app) printList(tools []listedTool) {
	if len(tools) == 0 {
		a.notef("no tools in %s", strings.Join(a.config.plugins, ", "))
		return
	}

	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	write := func(columns ...string) { _, _ = w.Write([]byte(strings.Join(columns, "\t") + "\n")) }
	write("TOOL", "HINTS", "PLUGIN", "DIGEST", "GRANTS", "DESCRIPTION")
	for _, t := range tools {
		digest := dash(t.Digest[:min(len(t.Digest), 12)])
		if t.Pinned {
			digest += " pinned"
		}
		grants := strings.Join(t.Grants, ", ")
		if len(t.Missing) > 0 {
			grants = "MISSING: " + strings.Join(t.Missing, ", ")
		}
		write(t.Name, hints(t.Hints, t.approval), t.Plugin+" "+t.Version, digest, dash(grants), short(t.Description, 60))
	}
	a.flush(w)
}

// hints are those of a tool, in short.
func hints(h abi.Hints, approval abi.Approval) string {
	var names []string
	for _, hint := range []struct {
		on   bool
		name string
	}{
		{h.SupportsBackground, "background"}, {h.Readonly, "readonly"}, {h.Idempotent, "idempotent"},
		{h.LongRunning, "long"}, {h.Concurrency == abi.Serial, "serial"}, {approval == abi.ApprovalRequired, "approval"},
	} {
		if hint.on {
			names = append(names, hint.name)
		}
	}
	return dash(strings.Join(names, ","))
}
