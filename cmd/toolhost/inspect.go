package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/internal/wasmbin"
	"github.com/toolhost/toolhost/plugins"
)

func inspectCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show the manifest, imports, exports, cost and needs of a plugin file",
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return inspectFile(cmd.Context(), a, args[0]) },
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// inspection is the output of the command inspect.
type inspection struct {
	File      string         `json:"file"`
	Module    *host.Info     `json:"module"`
	Source    string         `json:"manifest_source"`
	Manifest  *abi.Manifest  `json:"manifest"`
	Cost      host.Cost      `json:"cost"`
	Lock      string         `json:"lock,omitempty"`      // comparison with the lock, in words
	Signature string         `json:"signature,omitempty"` // who signed the plugin or why nobody did, in words; empty if trust names no signer
	Isolation host.Isolation `json:"isolation"`           // how the plugin's calls are isolated
	Waiting   waiting        `json:"waiting"`             // what happens to a run while it waits
	Lacking   string         `json:"needed_grants_yaml,omitempty"`
}

func inspectFile(ctx context.Context, a *app, name string) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return &usageError{errors.New(name + " is a folder: expected a file that ends in .wasm"), "toolhost list --plugins shows what is in a folder"}
	}
	wasm, err := readBounded(name, host.MaxPluginSize)
	if errors.Is(err, fs.ErrNotExist) {
		return &hintError{err, "inspect takes the file of a plugin: toolhost list --json has the file of each"}
	}
	if err != nil {
		return err
	}

	if filepath.Ext(name) != ".wasm" {
		return &usageError{errors.New(name + ": expected a file that ends in .wasm"), renameHint(name)}
	}

	if wasmbin.IsComponent(wasm) {
		_, err := wasmbin.Parse(wasm) // it refuses a component
		return &hintError{fmt.Errorf("%s: module: %w", name, err), "Rust: cargo build --target wasm32-wasip1; Go: GOOS=wasip1 GOARCH=wasm go build; C: clang --target=wasm32-wasip1; JavaScript, TypeScript, Python: toolhost new"}
	}
	i, err := inspectPlugin(ctx, a, name, wasm)
	if err != nil {
		return inspectModule(&a.ui, name, wasm, err)
	}
	return a.answer(i, nil, func() { i.print(a) })
}

// inspectModule shows a module that is not a plugin, for the reason why.
func inspectModule(u *ui, name string, wasm []byte, why error) error {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return why
	}
	shown := struct {
		File    string   `json:"file"`
		Size    int      `json:"size"` // bytes
		Digest  string   `json:"digest"`
		Memory  []int64  `json:"memory"` // initial and maximum size, in bytes; the maximum is absent if none is declared
		Imports []string `json:"imports"`
		Exports []string `json:"exports"`
		Error   string   `json:"error"`
	}{File: name, Size: len(wasm), Digest: fmt.Sprintf("%x", sha256.Sum256(wasm)), Memory: []int64{}, Imports: []string{}, Exports: []string{}, Error: why.Error()}
	for _, limits := range m.Memories {
		shown.Memory = append(shown.Memory, int64(limits.Min)*wasmbin.PageSize)
		if limits.HasMax {
			shown.Memory = append(shown.Memory, int64(limits.Max)*wasmbin.PageSize)
		}
	}
	for _, im := range m.Imports {
		shown.Imports = append(shown.Imports, im.Module+"."+im.Name)
	}
	for _, ex := range m.Exports {
		shown.Exports = append(shown.Exports, ex.Name)
	}
	if errors.Is(why, host.ErrNoManifest) && slices.Contains(shown.Exports, abi.ExportStart) {
		why = &hintError{fmt.Errorf("%s is a program without a manifest", name), "toolhost add " + name + " -- WORD... makes it a tool: the words are its command line"}
		shown.Error = why.Error()
	}

	return u.answer(shown, why, func() {
		u.printf("%s is a module of %s, sha256 %s\n", name, human.Bytes(int64(shown.Size)), shown.Digest)
		for i, size := range shown.Memory {
			u.printf("memory %s %s\n", [...]string{"of", "at most"}[i], human.Bytes(size))
		}
		u.printNames("imports", shown.Imports)
		u.printNames("exports", shown.Exports)
	})
}

// printNames prints a list of names under a title.
func (u *ui) printNames(title string, names []string) {
	u.printf("\n%s\n", title)
	for _, name := range names {
		u.printf("  %s\n", oneLine(name))
	}
}

// inspectPlugin loads a plugin without grants, and examines its module.
func inspectPlugin(ctx context.Context, a *app, name string, wasm []byte) (i inspection, err error) {
	err = a.withUngranted(ctx, name, func(h *host.Host, p *plugins.Plugin, problems []plugins.Problem) error {
		if err := p.Refused(); err != nil {
			problems = append(problems, plugins.Problem{File: p.File, Err: err})
		}

		if i, err = a.examine(h, p, name, wasm); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		a.warnOf(fileProblems(problems))
		return nil
	})
	return i, err
}

// withUngranted calls do with the plugin in a file, which it has loaded without grants.
func (a *app) withUngranted(ctx context.Context, name string, do func(*host.Host, *plugins.Plugin, []plugins.Problem) error) error {
	return a.withHost(ctx, func(h *host.Host, cacheDir string) error {
		folder := plugins.Folder{Path: filepath.Dir(name), FS: os.DirFS(filepath.Dir(name))} // anyone may have written it
		p, problems, err := plugins.Load(ctx, h, plugins.Config{Folders: []plugins.Folder{folder}, CacheDir: cacheDir}, filepath.Base(name))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return do(h, p, problems)
	})
}

// examine describes a plugin.
func (a *app) examine(h *host.Host, p *plugins.Plugin, name string, wasm []byte) (i inspection, err error) {
	i = inspection{File: name, Source: p.Source, Manifest: p.Manifest, Lacking: a.config.allLines(p)}
	i.Module, err = h.Inspect(wasm)
	if err == nil {
		i.Cost, err = h.Cost(wasm)
	}
	if err == nil {
		i.Isolation, err = h.Isolation(wasm)
	}
	i.Waiting = a.config.waiting(p, i.Module, i.Isolation)
	if err == nil {
		i.Lock, err = a.config.describeLock(p)
	}
	i.Signature = a.config.describeSignature(p, name)
	return i, err
}

// print prints the inspection for people.
func (i inspection) print(a *app) {
	m := i.Manifest
	a.printf("%s %s: %s\n\n", m.Name, m.Version, oneLine(m.Description))

	row := func(name, value string) { a.printf("%-10s %s\n", name, value) }
	row("file", fmt.Sprintf("%s, %s, sha256 %s", i.File, human.Bytes(int64(i.Module.Size)), i.Module.Digest))
	if i.Lock != "" {
		row("locked", i.Lock)
	}
	if i.Signature != "" {
		row("signature", i.Signature)
	}
	row("manifest", i.Source)
	row("shape", string(i.Module.Shape))
	row("memory", fmt.Sprintf("%s to %s", human.Bytes(i.Module.MinBytes), human.Bytes(i.Module.MaxBytes)))
	row("isolation", describeIsolation(i.Isolation, m.Tools))
	row("waiting", i.Waiting.String())
	row("needs", needs(m))
	if m.ConfigSchema != nil {
		row("config", string(m.ConfigSchema))
	}
	row("cost", fmt.Sprintf("table %d: %d functions; metering changes the size by %+.0f%%", i.Cost.Table, i.Cost.Functions, 100*i.Cost.Growth))

	for _, t := range m.Tools {
		var schema bytes.Buffer
		_ = json.Compact(&schema, t.InputSchema) // it was decoded before
		a.printf("\ntool %s: %s\n  hints  %s\n  input  %s\n", abi.AgentName(m.Name, t.Name), oneLine(t.Description), hints(t.Hints, declared(t.Hints, m), t.Approval, false), &schema)
		if t.Argv {
			a.printf("  argv   each argument as --name value\n")
		}
		if command, _ := json.Marshal(t.Command); string(command) != "{}" { // strings and numbers
			a.printf("  runs   %s\n", oneLine(string(command)))
		}
	}

	a.printf("\nimports\n")
	for _, name := range slices.Compact(slices.Sorted(slices.Values(i.Module.Imports))) { // Go imports some twice
		a.printf("  %s\n", oneLine(name))
	}
	a.printf("exports\n  %s\n", oneLine(strings.Join(i.Module.Exports, ", ")))
	if i.Lacking != "" {
		a.printf("\nto grant what it needs, %s\n%s", a.config.addTo(), i.Lacking)
	}
}

// needs formats the needs of a plugin as the operator would grant them.
func needs(m *abi.Manifest) string { return cmp.Or(strings.Join(plugins.Needs(m), ", "), "-") }

// describeIsolation says in words how calls are isolated, and why.
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

// waiting says what happens to a background run while it waits for operations that it has
// started.
type waiting struct {
	Suspends bool     `json:"suspends"`         // whether the run gives up its instance
	Why      string   `json:"why,omitempty"`    // reason why it does not
	Unless   []string `json:"unless,omitempty"` // conditions under which a run keeps its instance
}

// waiting returns what happens to a plugin's runs while they wait, with its grant and all
// of its needs.
func (c *config) waiting(p *plugins.Plugin, m *host.Info, i host.Isolation) waiting {
	needs, grant := p.Manifest.AllNeeds().All(), c.server.Grants[p.Manifest.Name]
	why := host.Resident(i, len(needs.Files)+len(grant.Files) > 0)
	if why == "" && !slices.Contains(m.Exports, abi.ExportResume) {
		why = "it waits in its code, because it does not export " + abi.ExportResume
	}
	if why != "" {
		return waiting{Why: why}
	}

	w := waiting{Suspends: true}
	if slices.ContainsFunc(p.Tools, (*plugins.Tool).TakesSecrets) {
		w.Unless = append(w.Unless, "it has secret arguments")
	}
	return w
}

// String describes the waiting in words.
func (w waiting) String() string {
	if !w.Suspends {
		return "a run that waits keeps its instance: " + w.Why
	}
	text := "a run that waits gives up its instance"
	if w.Unless != nil {
		text += ", unless " + strings.Join(w.Unless, ", or ")
	}
	return text
}
