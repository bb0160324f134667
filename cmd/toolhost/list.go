package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
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
			return a.answer(listing{tools, problems, a.config.lacking(s.Plugins()...)}, nil, func() {
				a.printList(tools)
				a.warnOf(problems)
				a.announceLacking(s.Plugins())
			})
		},
	}

	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// listing is what list --json prints.
type listing struct {
	Tools    []listedTool       `json:"tools"`
	Problems []wire.FileProblem `json:"problems"`
	Lacking  string             `json:"missing_grants_yaml,omitempty"` // see lacking
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
	Deferred    bool             `json:"deferred,omitempty"`

	approval abi.Approval
}

// grantsOf are the grants of a plugin as they hold for one of its tools.
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

// listed are the tools of plugins, by name.
func listed(plugins []wire.Plugin) []listedTool {
	out := []listedTool{}
	for _, p := range plugins {
		for _, t := range p.Tools {
			out = append(out, listedTool{
				t.Name, t.Title, t.Description, p.Name, p.Version, p.File, p.Digest, p.Pinned, t.Hints, t.Annotations, grantsOf(p.Grants, t.Hints), p.Missing, t.Deferred, t.Approval,
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

	rows := [][]string{{"TOOL", "HINTS", "PLUGIN", "DIGEST", "GRANTS", "DESCRIPTION"}}
	for _, t := range tools {
		digest := cmp.Or(t.Digest[:min(len(t.Digest), 12)], "-")
		if t.Pinned {
			digest += " pinned"
		}
		grants := strings.Join(t.Grants, ", ")
		if len(t.Missing) > 0 {
			grants = "MISSING: " + strings.Join(t.Missing, ", ")
		}
		rows = append(rows, []string{t.Name, hints(t.Hints, t.approval, t.Deferred), t.Plugin + " " + t.Version, digest, cmp.Or(grants, "-"), short(t.Description, 60)})
	}
	a.table(rows)
}

// hints are those of a tool, in short.
func hints(h abi.Hints, approval abi.Approval, deferred bool) string {
	var names []string
	for _, hint := range []struct {
		on   bool
		name string
	}{
		{h.SupportsBackground, "background"}, {h.Readonly, "readonly"}, {h.Idempotent, "idempotent"},
		{h.LongRunning, "long"}, {h.Concurrency == abi.Serial, "serial"}, {approval == abi.ApprovalRequired, "approval"}, {deferred, "deferred"},
	} {
		if hint.on {
			names = append(names, hint.name)
		}
	}
	return cmp.Or(strings.Join(names, ","), "-")
}

func inspectCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show the manifest, imports, exports, cost and needs of a plugin file",
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.inspectFile(cmd.Context(), args[0]) },
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// inspected is what inspect shows.
type inspected struct {
	File      string         `json:"file"`
	Module    *host.Info     `json:"module"`
	Source    string         `json:"manifest_source"`
	Manifest  *abi.Manifest  `json:"manifest"`
	Cost      host.Cost      `json:"cost"`
	Pin       string         `json:"pin,omitempty"` // what the plugin's name is pinned to, for people
	Isolation host.Isolation `json:"isolation"`     // how calls are kept apart
	Lacking   string         `json:"needed_grants_yaml,omitempty"`
}

func (a *app) inspectFile(ctx context.Context, name string) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return &usageError{errors.New(name + " is a folder: expected a file that ends in .wasm"), "toolhost list --plugins shows what is in a folder"}
	}
	wasm, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &hinted{err, "inspect takes the file of a plugin: toolhost list --json has the file of each"}
	}
	if err != nil {
		return err
	}

	if filepath.Ext(name) != ".wasm" {
		return &usageError{errors.New(name + ": expected a file that ends in .wasm"), ""}
	}

	i, err := a.inspectPlugin(ctx, name, wasm)
	if err != nil {
		return err
	}
	return a.answer(i, nil, func() { i.print(a) })
}

// inspectPlugin loads a plugin, with nothing granted, and examines its module.
func (a *app) inspectPlugin(ctx context.Context, name string, wasm []byte) (i inspected, err error) {
	cfg := a.config.server.Host
	cfg.Logger = a.logger()
	if cfg.CacheDir, err = a.config.cacheDir(); err != nil {
		return i, err
	}
	h, err := host.New(ctx, cfg)
	if err != nil {
		return i, err
	}
	defer h.Close(ctx)

	folder := plugins.Folder{Path: filepath.Dir(name), FS: os.DirFS(filepath.Dir(name))} // anyone may have written it
	p, problems, err := plugins.Load(ctx, h, plugins.Config{Folders: []plugins.Folder{folder}, CacheDir: cfg.CacheDir}, filepath.Base(name))
	if err != nil {
		return i, fmt.Errorf("%s: %w", name, err)
	}
	if err := p.Refused(); err != nil {
		problems = append(problems, plugins.Problem{File: p.File, Err: err})
	}

	i = inspected{File: name, Source: p.Source, Manifest: p.Manifest, Lacking: a.config.lacking(p)}
	i.Module, err = h.Inspect(wasm)
	if err == nil {
		i.Cost, err = h.Cost(wasm)
	}
	if err == nil {
		i.Isolation, err = h.Isolation(wasm)
	}
	if err == nil {
		i.Pin, err = a.config.describePin(p)
	}
	if err != nil {
		return i, fmt.Errorf("%s: %w", name, err)
	}
	a.warnOf(fileProblems(problems))
	return i, nil
}

// print shows it to people.
func (i inspected) print(a *app) {
	m := i.Manifest
	a.printf("%s %s: %s\n\n", m.Name, m.Version, oneLine(m.Description))

	row := func(name, value string) { a.printf("%-10s %s\n", name, value) }
	row("file", fmt.Sprintf("%s, %s, sha256 %s", i.File, human.Bytes(int64(i.Module.Size)), i.Module.Digest))
	if i.Pin != "" {
		row("pinned", i.Pin)
	}
	row("manifest", i.Source)
	row("shape", string(i.Module.Shape))
	row("memory", fmt.Sprintf("%s to %s", human.Bytes(i.Module.MinBytes), human.Bytes(i.Module.MaxBytes)))
	row("isolation", describeIsolation(i.Isolation, m.Tools))
	row("needs", needs(m.Needs))
	row("cost", fmt.Sprintf("table %d: %d functions; metering changes the size by %+.0f%%", i.Cost.Table, i.Cost.Functions, 100*i.Cost.Growth))

	for _, t := range m.Tools {
		var schema bytes.Buffer
		_ = json.Compact(&schema, t.InputSchema) // decoded before
		a.printf("\ntool %s: %s\n  hints  %s\n  input  %s\n", abi.AgentName(m.Name, t.Name), oneLine(t.Description), hints(t.Hints, t.Approval, false), &schema)
	}

	a.printf("\nimports\n")
	for _, name := range i.Module.Imports {
		a.printf("  %s\n", oneLine(name))
	}
	a.printf("exports\n  %s\n", oneLine(strings.Join(i.Module.Exports, ", ")))
	if i.Lacking != "" {
		a.printf("\nto grant what it needs, %s\n%s", a.config.addTo(), i.Lacking)
	}
}

// needs is what a plugin needs, as the operator would grant it.
func needs(n abi.Needs) string {
	return cmp.Or(strings.Join(plugins.Grant{}.Missing(n), ", "), "-")
}

// describeIsolation says how calls are kept apart, and why.
func describeIsolation(i host.Isolation, tools []abi.Tool) string {
	if i.Mode != host.Reset {
		return "a fresh instance for each call: " + i.Why
	}

	text := "each call starts from a snapshot of the plugin after its start-up: " + i.Why
	var impure []string
	for _, t := range tools {
		if !t.Hints.IsPureInit() {
			impure = append(impure, t.Name)
		}
	}
	if impure != nil {
		text += "; calls of " + strings.Join(impure, ", ") + " get a fresh instance: pure_init is false"
	}
	return text
}

func pinCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "pin PLUGIN",
		Short: "Pin a plugin to its current file",
		Long: `Pin a plugin to its current file, and to the manifest next to it if it has one.
Grants go by the name of a plugin, and any file can claim that name. Another file
with a pinned name is not loaded until you pin it. Pins are kept in the data folder.
They apply at once to a server that watches its plugins.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.pinPlugin(cmd.Context(), args[0]) },
	}
}

func unpinCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "unpin PLUGIN",
		Short: "Remove the pin of a plugin",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := a.config.cacheDir(); err != nil { // checks the data folder
				return err
			}
			switch err := plugins.RemovePin(a.config.pinDir(), args[0]); {
			case errors.Is(err, fs.ErrNotExist):
				return &usageError{fmt.Errorf("the plugin %q is not pinned", args[0]), "toolhost list shows which are"}
			case err != nil:
				return err
			}
			a.printf("no longer pinned: %s\n", args[0])
			return nil
		},
	}
}

// pinDir is the folder of the pins.
func (c *loaded) pinDir() string { return filepath.Join(c.data, "pins") }

// pinPlugin pins the plugin that would be loaded if nothing was pinned.
func (a *app) pinPlugin(ctx context.Context, name string) error {
	s, done, err := a.open(ctx, func(cfg *server.Config) { cfg.PinDir = "" })
	if err != nil {
		return err
	}
	defer done()

	for _, p := range s.Plugins() {
		if p.Manifest.Name != name {
			continue
		}
		pin, err := p.Pin()
		if err != nil {
			return fmt.Errorf("%s: %w", p.File, err)
		}
		if err := plugins.WritePin(a.config.pinDir(), name, pin); err != nil {
			return err
		}
		a.printf("pinned %s to %s: %s, granted %s\n", name, pin.Digest, oneLine(p.File), cmp.Or(oneLine(strings.Join(p.Grant.Names(), ", ")), "-"))
		return nil
	}

	a.warnOf(fileProblems(s.Problems())) // the plugin may be among them
	return &usageError{fmt.Errorf("no plugin %q in %s", name, strings.Join(a.config.plugins, ", ")), "toolhost list shows the plugins"}
}

// describePin says what the name of a plugin is pinned to; empty if to nothing.
func (c *loaded) describePin(p *plugins.Plugin) (string, error) {
	want, err := plugins.ReadPin(c.pinDir(), p.Manifest.Name)
	if err != nil || want == nil {
		return "", err
	}

	have, err := p.Pin()
	switch {
	case err != nil:
		return "", err
	case have == *want:
		return "to this plugin", nil
	case have.Digest == want.Digest:
		return "to this file with another manifest next to it", nil
	}
	return "to another file, sha256 " + want.Digest, nil
}
