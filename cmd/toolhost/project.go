package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/cmd/toolhost/internal/export"
	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/internal/wasmbin"
	"github.com/toolhost/toolhost/plugins"
)

// language builds plugins from sources in one programming language.
type language interface {
	// files returns the files of a new project for a plugin with this name, by path.
	files(name string) map[string]string
	// main returns the path of the main source of a project in this language, or nothing if
	// there is no such project in dir.
	main(dir string) string
	// compile builds the plugin from a project. The plugin need not have a manifest: in that
	// case the command asks it to describe itself.
	compile(ctx context.Context, dir string) ([]byte, error)
}

// languages maps the names for toolhost new to languages. A project is built by the first
// language, in the order of their names, whose main source it has.
var languages = map[string]language{
	"c":          inC{},
	"go":         golang{},
	"javascript": javascript{".js"},
	"typescript": javascript{".ts"},
	"python":     inPython{},
	"rust":       rust{},
}

//go:embed templates
var templates embed.FS

// project returns the files of a new project, from the templates for a language. values
// alternates between texts in the templates and what replaces them: "%NAME%", name, and so on.
func project(language string, values ...string) map[string]string {
	dir, err := fs.Sub(templates, "templates/"+language)
	if err != nil {
		panic(err) // no name of a language is an invalid path
	}
	files, fill := map[string]string{}, strings.NewReplacer(values...)
	_ = fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, failed error) error { // embedded files can be read
		if failed != nil || e.IsDir() {
			return failed
		}
		text, err := fs.ReadFile(dir, name)
		name = strings.TrimSuffix(name, ".tmpl")
		if name == "gitignore" { // git would obey it here
			name = ".gitignore"
		}
		files[name] = fill.Replace(string(text))
		return err
	})
	return files
}

// buildFuel is the fuel for describing a newly built plugin: scripts with large libraries use
// billions of units to start up.
const buildFuel = 20_000_000_000

// pluginName matches valid names of plugins.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

func newCommand(a *app) *cobra.Command {
	names := strings.Join(slices.Sorted(maps.Keys(languages)), ", ")
	return &cobra.Command{
		Use:   "new LANGUAGE NAME",
		Short: "Make the project of a plugin: " + names,
		Long: `Make a folder with the project of a plugin, which builds and runs at once.

LANGUAGE is one of ` + names + `. NAME is the name of the plugin: lower-case
letters, digits and _.`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return newProject(a, args[0], args[1]) },
	}
}

func newProject(a *app, lang, name string) error {
	l, ok := languages[lang]
	names := slices.Sorted(maps.Keys(languages))
	switch {
	case !ok:
		hint := "expected one of " + strings.Join(names, ", ")
		if near := abi.Nearest(lang, names); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return &usageError{fmt.Errorf("unknown language %q", lang), hint}
	case !pluginName.MatchString(name):
		return &usageError{fmt.Errorf("invalid name %q: expected a lower-case letter, and at most 31 more lower-case letters, digits and _", name), ""}
	}

	files := map[string]export.File{}
	for file, text := range l.files(name) {
		files[file] = export.File{Data: []byte(text)}
	}
	if err := a.writeFolder(name, files); err != nil {
		return err
	}
	folder, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	a.printf("\nBuild it and call its tool:\n\n    toolhost build %[1]s\n    toolhost test %[1]s/%[1]s.wasm\n    toolhost call --plugins %[1]s %[1]s_count '{\"text\":\"one two\"}'\n", name)
	a.printf("\nAn agent calls it over MCP, if its configuration has this server:\n\n    {\"command\": \"toolhost\", \"args\": [\"mcp\", \"--plugins\", %q]}\n", folder)
	return nil
}

func buildCommand(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "build [FOLDER]",
		Short: "Build the plugin of a project",
		Long: `Build the plugin of the project in a folder, or in this one: compile it, ask the
plugin for its manifest, and write both into NAME.wasm, where NAME is its name.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return a.build(cmd.Context(), dir, out)
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().StringVarP(&out, "output", "o", "", "`file` of the plugin (default NAME.wasm in the folder of the project)")
	return cmd
}

// buildOutput is the output of build --json.
type buildOutput struct {
	File     string   `json:"file"`
	Bytes    int      `json:"bytes"`
	Plugin   string   `json:"plugin"`
	Tools    []string `json:"tools"`
	manifest *abi.Manifest
}

func (b buildOutput) String() string {
	return fmt.Sprintf("%s: %s, with %s: %s", b.File, human.Bytes(int64(b.Bytes)), plural(len(b.Tools), "tool"), strings.Join(b.Tools, ", "))
}

func (a *app) build(ctx context.Context, dir, out string) error {
	done, err := makePlugin(ctx, a, dir, out)
	return a.reply(done, err, func() { a.printf("%s\n", done) })
}

// makePlugin builds the plugin from a project.
func makePlugin(ctx context.Context, a *app, dir, out string) (done buildOutput, err error) {
	l, err := languageOf(dir)
	if err != nil {
		return done, err
	}
	wasm, err := l.compile(ctx, dir)
	if err != nil {
		return done, err
	}

	var m *abi.Manifest
	err = a.withHost(ctx, func(h *host.Host, _ string) (err error) {
		wasm, err = pluginbuild.Seal(ctx, describer{h}, wasm)
		if err == nil {
			m, err = manifestOf(wasm)
		}
		if err == nil {
			err = plugins.CheckSchemas(m)
		}
		if err != nil {
			return &hintError{fmt.Errorf("the plugin cannot be described: %w", ownWords(err)), describeHint(l.main(dir), err)}
		}
		return nil
	})
	if err != nil {
		return done, err
	}

	out = cmp.Or(out, filepath.Join(dir, m.Name+".wasm"))
	if err := pluginbuild.Replace(out, wasm); err != nil {
		return done, err
	}
	done = buildOutput{File: out, Bytes: len(wasm), Plugin: m.Name, Tools: []string{}, manifest: m}
	for _, t := range m.Tools {
		done.Tools = append(done.Tools, t.Name)
	}
	return done, nil
}

// authorPages maps the file name endings of sources to the pages in docs/ for their authors.
var authorPages = map[string]string{".go": "go.md", ".js": "javascript.md", ".ts": "javascript.md", ".py": "python.md", ".rs": "rust.md", ".c": "c.md"}

// ownWords returns what a plugin itself said when it could not start, such as an exception.
func ownWords(err error) error {
	if call, ok := errors.AsType[*host.CallError](err); ok && errors.Is(err, host.ErrABI) {
		return errors.New(strings.TrimPrefix(call.Err.Error(), host.ErrABI.Error()+": "))
	}
	return err
}

// describeHint says what the author of a source can do if the plugin cannot be described.
func describeHint(source string, err error) string {
	ext, text := filepath.Ext(source), err.Error()
	switch {
	case ext == ".py" && strings.Contains(text, "ModuleNotFoundError: "):
		return "modules are packed if they are next to tool.py, or in a wheel: " + wheelHint + ". docs/python.md lists what the standard library lacks"
	case ext == ".rs" && strings.Contains(text, abi.ExportInvoke):
		return "plugin! { name: …, description: …, tools: […] } makes the exports"
	}
	return "docs/" + authorPages[ext] + " says what a tool declares"
}

// languageOf returns the language of the project in a folder.
func languageOf(dir string) (language, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, &usageError{fmt.Errorf("there is no folder %s", dir), "toolhost new LANGUAGE NAME makes a project"}
	} else if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(languages)) {
		if languages[name].main(dir) != "" {
			return languages[name], nil
		}
	}
	return nil, &usageError{fmt.Errorf("%s has no project: expected tool.ts, tool.js, tool.py, tool.c, main.go in a Go module, or src/lib.rs and Cargo.toml", dir), "toolhost new LANGUAGE NAME makes one"}
}

// sourceIn returns the path of a file in a folder, or nothing if the file does not exist.
func sourceIn(dir, name string) string {
	file := filepath.Join(dir, name)
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		return ""
	}
	return file
}

// describer is a host that gives newly built plugins more fuel to describe themselves.
type describer struct{ *host.Host }

// Describe implements pluginbuild.Describer.
func (d describer) Describe(ctx context.Context, wasm []byte) ([]byte, error) {
	return d.DescribeWith(ctx, wasm, host.DescribeOptions{Fuel: buildFuel})
}

// manifestOf reads the manifest in a plugin's file.
func manifestOf(wasm []byte) (*abi.Manifest, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	data, _ := m.Custom(abi.SectionManifest)
	return abi.DecodeManifest(data)
}
