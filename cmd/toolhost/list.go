package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

func listCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tools, their plugins, and plugins that could not be loaded",
		Long: `List the tools, their plugins, and plugins that could not be loaded.

HINTS says what a tool declares and what a call of it may do: destructive may delete or
overwrite something, open_world may reach public addresses.

Exit code 1 means that there is a problem. A plugin that lacks grants is not one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.list(cmd.Context()) },
	}

	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func (a *app) list(ctx context.Context) error {
	debug.SetGCPercent(400) // the process ends soon
	s, done, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	defer done()

	loaded, found, err := s.Catalog(ctx)
	if err != nil {
		return err
	}
	tools, problems, overridden := listed(loaded, s), fileProblems(s.Problems()), s.Overridden()
	for _, p := range loaded {
		if p.Digest == "" { // its file can no longer be read
			problems = append(problems, found[slices.IndexFunc(found, func(f wire.FileProblem) bool { return f.File == p.File })])
		}
	}

	return a.answer(listing{tools, problems, overridden, a.config.lacking(s.Plugins()...)}, failedBy(problems), func() {
		a.printList(tools)
		for _, p := range overridden {
			a.notef("toolhost: %s", oneLine(p.File+": "+p.Error))
		}
		a.warnOf(problems)
		a.announceLacking(s.Plugins())
	})
}

// failedBy returns the error of a command that has printed problems, or nil if there are none.
func failedBy(problems []wire.FileProblem) error {
	if len(problems) == 0 {
		return nil
	}
	return &reportedError{errors.New(plural(len(problems), "problem"))}
}

// listing is the output of list --json.
type listing struct {
	Tools      []listedTool       `json:"tools"`
	Problems   []wire.FileProblem `json:"problems"`
	Overridden []wire.FileProblem `json:"overridden,omitempty"`          // plugins of the starter pack that gave way to others
	Lacking    string             `json:"missing_grants_yaml,omitempty"` // lines to add to the configuration: see lacking
}

// listedTool is a tool with its plugin.
type listedTool struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description"`
	Plugin      string           `json:"plugin"`
	Version     string           `json:"version"`
	File        string           `json:"file"`
	Digest      string           `json:"digest"`
	Locked      bool             `json:"locked,omitempty"` // whether it is the version accepted in toolhost.lock
	Signer      string           `json:"signer,omitempty"`
	Hints       abi.Hints        `json:"hints"`
	Annotations wire.Annotations `json:"annotations"`
	Grants      []string         `json:"grants"`
	Missing     []string         `json:"missing_grants,omitempty"`
	Deferred    bool             `json:"deferred,omitempty"`

	approval abi.Approval
	effects  wire.Annotations // effects of a call; if grants are missing, those that a call would have with them
}

// grantsOf returns a plugin's grants as they apply to one of its tools.
func grantsOf(grants []string, hints abi.Hints) []string {
	if !hints.Readonly {
		return grants
	}
	grants = slices.Clone(grants)
	for i, g := range grants {
		if folder, ok := strings.CutSuffix(g, fmt.Sprintf(" (%s)", abi.FileWrite)); ok {
			grants[i] = fmt.Sprintf("%s (%s)", folder, abi.FileRead)
		}
	}
	return grants
}

// listed returns the tools of plugins, sorted by name.
func listed(plugins []wire.Plugin, s *server.Service) []listedTool {
	out := []listedTool{}
	for _, p := range plugins {
		for _, t := range p.Tools {
			effects := t.Annotations
			if tool, err := s.Lookup(t.Name); err == nil && len(t.Missing) > 0 {
				effects = declared(t.Hints, tool.Plugin.Manifest)
			}
			out = append(out, listedTool{
				t.Name, t.Title, t.Description, p.Name, p.Version, p.File, p.Digest, p.Locked, p.Signer, t.Hints, t.Annotations, grantsOf(p.Grants, t.Hints), t.Missing, t.Deferred, t.Approval, effects,
			})
		}
	}

	slices.SortFunc(out, func(a, b listedTool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (a *app) printList(tools []listedTool) {
	if len(tools) == 0 {
		text := "no tools in " + a.config.folderNames()
		if !slices.ContainsFunc(a.config.folders(), hasModule) {
			text += ", where no file ends in .wasm"
		}
		a.notef("%s", text)
		return
	}

	a.table(listRows(tools))
}

// hasModule reports whether a folder may contain a plugin, even one that cannot be read.
func hasModule(f plugins.Folder) bool {
	entries, err := fs.ReadDir(f.FS, ".")
	return err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".wasm") })
}

// maxGrants is how many characters of a tool's grants are shown. JSON contains them all.
const maxGrants = 40

// listRows returns a row for each tool.
func listRows(tools []listedTool) [][]string {
	rows := [][]string{{"TOOL", "HINTS", "PLUGIN", "DIGEST", "GRANTS", "DESCRIPTION"}}
	for _, t := range tools {
		digest := cmp.Or(t.Digest[:min(len(t.Digest), 12)], "-")
		if t.Locked {
			digest += " locked"
		}
		if t.Signer != "" {
			digest += " signed"
		}

		grants := strings.Join(t.Grants, ", ")
		if len(t.Missing) > 0 {
			grants = "MISSING: " + strings.Join(t.Missing, ", ")
		}
		rows = append(rows, []string{t.Name, hints(t.Hints, t.effects, t.approval, t.Deferred), t.Plugin + " " + t.Version, digest, cmp.Or(short(grants, maxGrants), "-"), short(t.Description, 60)})
	}
	return rows
}

// declared returns what a call to a tool may do if its plugin is granted everything that the
// plugin and its tools need.
func declared(h abi.Hints, m *abi.Manifest) wire.Annotations {
	all := host.Grant{}.Lacking(m.AllNeeds().All())
	calls := len(all.Tools) > 0 // of tools that may do anything
	return wire.Annotations{
		Destructive: (all.Writes() || calls) && h.IsDestructive(),
		OpenWorld:   all.Public() || calls && (h.OpenWorld == nil || *h.OpenWorld),
	}
}

// hints formats the hints of a tool in short form, together with what a call of it may do.
func hints(h abi.Hints, effects wire.Annotations, approval abi.Approval, deferred bool) string {
	var names []string
	for _, hint := range []struct {
		on   bool
		name string
	}{
		{h.SupportsBackground, "background"}, {h.Readonly, "readonly"}, {h.Idempotent, "idempotent"},
		{h.LongRunning, "long"}, {h.Concurrency == abi.Serial, "serial"},
		{effects.Destructive, "destructive"}, {effects.OpenWorld, "open_world"}, {approval == abi.ApprovalRequired, "approval"}, {deferred, "deferred"},
	} {
		if hint.on {
			names = append(names, hint.name)
		}
	}
	return cmp.Or(strings.Join(names, ","), "-")
}
