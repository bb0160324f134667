package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/export"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/document"
	"github.com/toolhost/toolhost/plugins"
)

func exportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Pack the configured plugins for programs that start MCP servers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(agentPluginCommand(a), mcpbCommand(a))
	return cmd
}

// exporter packs the configured plugins, under the names from its flags.
type exporter struct {
	*app
	name, version, description, author string
	program                            bool // whether to include this program
}

// addFlags adds the flags for both formats.
func (e *exporter) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.name, "name", "", "name: lower-case letters, digits and hyphens (default: that of what is written)")
	cmd.Flags().StringVar(&e.version, "version", "", "semantic version (default: that of the plugin if there is one, or 1.0.0)")
	cmd.Flags().StringVar(&e.description, "description", "", "what the tools are for (default: that of the plugin if there is one)")
	cmd.Flags().StringVar(&e.author, "author", "", "who publishes it")
}

// exported is the part of the help text that both formats share.
const exported = `
It has copies of the configured plugins, and grants them what they are granted here,
except what only this machine has: folders, variables, settings and secrets. The
command prints what it leaves out. Whoever installs it grants that in their own
configuration.`

func agentPluginCommand(a *app) *cobra.Command {
	e := &exporter{app: a}
	cmd := &cobra.Command{
		Use:   "agent-plugin FOLDER",
		Short: "Write an agent plugin (agent-plugins.org) into a new folder",
		Long: `Write an agent plugin (agent-plugins.org, version 1.0.0) into a new folder: a server
that starts toolhost mcp with the plugins, and a skill that says what their tools are
for. Clients find toolhost on their PATH, or with --program in the folder.
` + exported,
		Example: `  toolhost export agent-plugin ./weather-tools --plugins plugins --author "Ana"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name = cmp.Or(e.name, filepath.Base(filepath.Clean(args[0])))
			b, err := e.bundle(cmd.Context())
			if err != nil {
				return err
			}

			files, err := b.AgentPlugin()
			if err != nil {
				return &usageError{err, ""}
			}
			return a.writeFolder(args[0], files)
		},
	}
	e.addFlags(cmd)
	cmd.Flags().BoolVar(&e.program, "program", false, "include this program, for machines of this system that have no toolhost")
	return cmd
}

func mcpbCommand(a *app) *cobra.Command {
	e := &exporter{app: a, program: true}
	cmd := &cobra.Command{
		Use:   "mcpb FILE.mcpb",
		Short: "Write an MCP bundle (MCPB), which desktop clients install",
		Long: `Write an MCP bundle (MCPB, version 0.3 of its manifest), which desktop clients
install. It includes this program, and is for machines of this system.
` + exported,
		Example: `  toolhost export mcpb weather.mcpb --plugins plugins --author "Ana"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name = cmp.Or(e.name, strings.TrimSuffix(filepath.Base(args[0]), ".mcpb"))
			b, err := e.bundle(cmd.Context())
			if err != nil {
				return err
			}

			data, err := b.MCPB()
			if err != nil {
				return &usageError{err, "toolhost export mcpb --help shows the flags"}
			}
			if err := writeNew(args[0], data, 0o644); errors.Is(err, fs.ErrExist) {
				return errThere(args[0])
			} else if err != nil {
				return err
			}
			a.printf("%s\n", args[0])
			return nil
		},
	}
	e.addFlags(cmd)
	return cmd
}

// bundle returns the loaded plugins in the form that an export needs. It reports the
// problems of the others.
func (e *exporter) bundle(ctx context.Context) (b export.Bundle, err error) {
	if err := export.CheckName(e.name); err != nil {
		return b, &usageError{err, "name it with --name"}
	}
	s, done, err := e.open(ctx, nil)
	if err != nil {
		return b, err
	}
	defer done()
	e.warnOf(fileProblems(s.Problems()))

	loaded := slices.SortedFunc(slices.Values(s.Plugins()), func(x, y *plugins.Plugin) int { return cmp.Compare(x.Manifest.Name, y.Manifest.Name) })
	b = export.Bundle{Name: e.name, Version: cmp.Or(e.version, "1.0.0"), Description: e.description, Author: e.author}
	if len(loaded) == 1 {
		only := loaded[0].Manifest
		b.Version, b.Description = cmp.Or(e.version, only.Version), cmp.Or(e.description, oneLine(short(only.Description, 400)))
	}
	b.Description = cmp.Or(b.Description, plural(len(s.Tools()), "sandboxed tool")+" of Toolhost")

	for _, p := range loaded {
		packed, err := packPlugin(p)
		if err != nil {
			return b, fmt.Errorf("%s: %w", p.File, err)
		}
		b.Plugins = append(b.Plugins, packed)
	}
	b.Config = []byte(e.portableConfig(loaded))
	if e.program {
		b.Program, err = thisProgram()
	}
	return b, err
}

// packPlugin returns a plugin together with its files.
func packPlugin(p *plugins.Plugin) (export.Plugin, error) {
	out := export.Plugin{Name: p.Manifest.Name, Version: p.Manifest.Version, Description: p.Manifest.Description}
	for _, t := range p.Tools {
		out.Tools = append(out.Tools, export.Tool{Name: t.Name, Description: t.Description, Readonly: t.Hints.Readonly})
	}
	if p.Pack { // it comes with the program
		return out, nil
	}

	var err error
	if out.Files, err = p.Files(); err != nil || len(out.Files) > 1 {
		return out, err
	}
	for name, wasm := range out.Files { // without a sidecar: a client sees its tools at once
		out.Files[name], err = sealed(p, wasm)
	}
	return out, err
}

// portableConfig returns a configuration that serves the exported plugins with their
// grants. It reports and leaves out what has no meaning on another machine.
func (e *exporter) portableConfig(loaded []*plugins.Plugin) string {
	var text strings.Builder
	var packs, grants []string
	for _, p := range loaded {
		name := document.QuoteYAML(p.Manifest.Name)
		if p.Pack {
			packs = append(packs, name)
		}

		grant, left := portable(e.config.server.Grants[p.Manifest.Name])
		if len(left) > 0 {
			e.notef("toolhost: left out of the grants of %s: %s", oneLine(p.Manifest.Name), strings.Join(left, ", "))
		}
		var lines strings.Builder
		if writeGrant(&lines, grant); lines.Len() > 0 {
			grants = append(grants, "  "+name+":\n"+lines.String())
		}
	}

	folders := "tools"
	if len(packs) == len(loaded) {
		folders = ""
	}
	fmt.Fprintf(&text, "plugins: [%s]\nstarter: [%s]\n", folders, strings.Join(packs, ", "))
	if len(grants) > 0 {
		text.WriteString("grants:\n" + strings.Join(grants, ""))
	}
	return text.String()
}

// portable returns the part of a grant that means the same on every machine, and the
// names of the other parts.
func portable(g host.Grant) (_ host.Grant, left []string) {
	if len(g.Files) > 0 {
		left = append(left, "files")
	}
	for _, part := range []struct {
		name   string
		values map[string]string
	}{{"env", g.Env}, {"config", g.Config}} {
		if len(part.values) > 0 {
			left = append(left, part.name+" ("+oneLine(strings.Join(slices.Sorted(maps.Keys(part.values)), ", "))+")")
		}
	}
	g.Files, g.Env, g.Config = nil, nil, nil

	var rules []host.HTTPRule
	for _, r := range g.HTTP {
		if r.Secret != "" || r.Private {
			left = append(left, "http "+oneLine(r.URL))
			continue
		}
		rules = append(rules, r)
	}
	g.HTTP = rules
	return g, left
}

// thisProgram returns the file of this program.
func thisProgram() (*export.Program, error) {
	file, err := os.Executable()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	return &export.Program{GOOS: runtime.GOOS, Data: data}, err
}

// errThere is the error for a file or folder that already exists.
func errThere(name string) error {
	return &usageError{fmt.Errorf("%s is there already", name), "choose another name, or remove it"}
}

// writeFolder writes files to a new folder, which must not exist yet, and prints their
// names. If it fails, it leaves nothing behind.
func (u *ui) writeFolder(dir string, files map[string]export.File) (err error) {
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return errThere(dir)
	} else if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()

	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if files[name].Executable {
			mode = 0o755
		}
		if err := os.WriteFile(to, files[name].Data, mode); err != nil {
			return err
		}
	}
	for _, name := range names {
		u.printf("%s\n", filepath.Join(dir, filepath.FromSlash(name)))
	}
	return nil
}
