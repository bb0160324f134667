package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/document"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// programFlags holds the flags of add that are for programs.
type programFlags struct {
	name        string
	description string
	about       []string
	to          string
	example     string
	untried     bool
	success     []int
	output      string
	folders     []string
	dashes      []string
	env         []string
}

func (f *programFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "name", "", "`name` of the plugin and its tool (default: that of the file)")
	flags.StringVar(&f.description, "description", "", "what the tool does, for models")
	flags.StringArrayVar(&f.about, "describe", nil, "what an argument is, for models, as `ARGUMENT=TEXT`; may be repeated")
	flags.StringVar(&f.to, "to", "", "`folder` of plugins (default: the first one configured, or one of your own)")
	flags.StringVar(&f.example, "example", "", "arguments to try the program with, as `JSON`; for {name:stdin}, text can also be piped in")
	flags.BoolVar(&f.untried, "untried", false, "add the program without a try")
	flags.IntSliceVar(&f.success, "success", nil, "exit `codes` whose output is a result (default 0)")
	flags.StringVar(&f.output, "output", "", "what the output is: text, json, lines, auto, base64, or the `type` of an image such as image/png (default auto)")
	flags.StringArrayVar(&f.folders, "folder", nil, "a folder that the program needs, as `PATH[:write]`; may be repeated. If there is one, it is the working directory. A try sees a copy of testdata/PATH next to the file")
	flags.StringSliceVar(&f.dashes, "allow-dash", nil, "`arguments` whose values may begin with -, because the program cannot take them for options")
	flags.StringArrayVar(&f.env, "env", nil, "a constant variable, as `NAME=VALUE`; may be repeated")
}

// A program is a WebAssembly file that becomes a plugin.
type program struct {
	file string
	wasm []byte
	name string
	line template // command line
	// sidecar is the manifest to write next to the program. Nil means that the program already
	// has a manifest, in the file or next to it.
	sidecar []byte
	endings []string // file name endings of the manifests that are next to it
}

// addFile adds a plugin file, or a program with a template for its command line.
func addFile(ctx context.Context, a *app, name string, f programFlags, words []string) error {
	p, err := f.read(ctx, a, name, words)
	if err != nil {
		return err
	}
	to, err := f.folder(a)
	if err != nil {
		return err
	}
	if err := p.vacant(a, to); err != nil {
		return err
	}

	work, err := os.MkdirTemp("", "toolhost-add-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := p.write(work); err != nil {
		return err
	}
	if p.sidecar != nil && !f.untried {
		if err := f.try(ctx, a, &p, work); err != nil {
			return err
		}
	}
	if err := a.checkFits(ctx, plugins.Folder{Path: work, FS: os.DirFS(work)}); err != nil {
		return err
	}
	return p.install(ctx, a, to)
}

// read reads a file and, if it is a program, makes its sidecar.
func (f programFlags) read(ctx context.Context, a *app, file string, words []string) (p program, err error) {
	if filepath.Ext(file) != ".wasm" {
		return p, &usageError{errors.New(file + ": expected a file that ends in .wasm, or oci://HOST/NAME:TAG"), renameHint(file)}
	}
	p = program{file: file, name: f.name}
	if p.wasm, err = readBounded(file, host.MaxPluginSize); err != nil {
		return p, err
	}
	var info *host.Info
	err = a.withHost(ctx, func(h *host.Host, _ string) error {
		info, err = h.Inspect(p.wasm)
		return err
	})
	if err != nil {
		return p, &hintError{fmt.Errorf("%s: %w", file, err), "toolhost inspect " + file + " shows what it is"}
	}

	p.endings = plugins.Sidecars(os.DirFS(filepath.Dir(file)), filepath.Base(file))
	if info.Manifest != nil || info.Describe || len(p.endings) > 0 {
		if words != nil || !reflect.DeepEqual(f, programFlags{to: f.to}) {
			return p, &usageError{errors.New(file + " has a manifest, which says how it is called"), "leave out what follows --, and all flags but --to"}
		}
		p.name = strings.TrimSuffix(filepath.Base(file), ".wasm")
		return p, nil
	}
	if info.Shape != host.Command {
		return p, &hintError{fmt.Errorf("%s is no program: it is a %s without a manifest", file, info.Shape), "add the manifest next to it, see docs/contract.md"}
	}
	if words == nil {
		return p, &usageError{errors.New("how is the program called? Write its command line after --"), fmt.Sprintf("for example: toolhost add %s -- -n '{count:integer?}' '{text:stdin}'", file)}
	}
	p.name = cmp.Or(p.name, nameOf(file))
	if !pluginName.MatchString(p.name) { // it becomes the name of a file
		return p, &usageError{fmt.Errorf("--name: expected a name of %s, found %q", pluginName, p.name), ""}
	}
	if p.line, err = parseWords(words); err != nil {
		return p, &usageError{err, "toolhost add --help has the placeholders"}
	}
	if err := p.line.describe(f.about); err != nil {
		return p, &usageError{fmt.Errorf("--describe %w", err), ""}
	}
	p.sidecar, err = f.manifest(p.name, p.line, "", nil)
	return p, err
}

// renameHint returns a hint for files that compilers such as Go's have written without the
// ending.
func renameHint(file string) string {
	return "if it is a program for WASI: mv " + file + " " + file + ".wasm"
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// nameOf makes a plugin name from the name of a file.
func nameOf(file string) string {
	name := strings.ToLower(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
	name = strings.Trim(notInNames.ReplaceAllString(name, "_"), "_")
	if name == "" || name[0] < 'a' {
		name = "run_" + name
	}
	return name[:min(len(name), 32)]
}

// manifest returns the sidecar of a program. If args is not empty, args and result become an
// example.
func (f programFlags) manifest(name string, t template, args string, result json.RawMessage) ([]byte, error) {
	folders, writes, err := f.needs()
	if err != nil {
		return nil, err
	}
	env, err := f.variables()
	if err != nil {
		return nil, err
	}
	description := cmp.Or(f.description, strings.TrimSpace("Runs "+name+" "+t.String()))

	var b bytes.Buffer
	line := func(indent int, key string, value any) {
		fmt.Fprintf(&b, "%*s%s: %s\n", indent, "", key, notInYAML.ReplaceAllStringFunc(jsonText(value), func(s string) string {
			r, _ := utf8.DecodeRuneInString(s)
			return fmt.Sprintf(`\u%04x`, r)
		}))
	}
	line(0, "abi", abi.Version)
	line(0, "name", name)
	line(0, "version", "1.0.0")
	line(0, "description", description)
	if len(folders) > 0 {
		line(0, "needs", map[string]any{"files": folders})
	}
	b.WriteString("tools:\n")
	line(2, "- name", name)
	line(4, "description", description)
	line(4, "input_schema", t.schema())
	b.WriteString("    command:\n")
	line(6, "args", append([]abi.Word{}, t.args...))
	line(6, "stdin", map[bool]string{true: "{" + t.stdin + "}"}[t.stdin != ""])
	if len(env) > 0 {
		line(6, "env", env)
	}
	if f.dashes != nil {
		line(6, "allow_dash", f.dashes)
	}
	if len(folders) == 1 {
		line(6, "dir", folders[0].Path)
	}
	if f.success != nil {
		line(6, "success", f.success)
	}
	switch {
	case strings.HasPrefix(f.output, "image/"):
		line(6, "output", map[string]string{"image": f.output})
	case f.output != "":
		line(6, "output", f.output)
	}
	if !writes { // a program has no way out but its folders
		b.WriteString("    hints: {readonly: true, idempotent: true, open_world: false}\n")
	}
	if args != "" {
		line(4, "examples", []abi.Example{{Args: json.RawMessage(args), Result: result}})
	}
	return b.Bytes(), nil
}

// jsonText returns a value as JSON, which is also valid YAML.
func jsonText(value any) string {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // strings, numbers and JSON
	return strings.TrimSuffix(text.String(), "\n")
}

// notInYAML matches characters that may appear unescaped in a JSON string, but not in a YAML
// string.
var notInYAML = regexp.MustCompile("[\u007f-\u009f\ufeff\ufffe\uffff]")

// needs returns the folders that the program needs, and whether it writes to any of them.
func (f programFlags) needs() (folders []abi.FileNeed, writes bool, err error) {
	for _, folder := range f.folders {
		path, mode, given := strings.Cut(folder, ":")
		if given && mode != string(abi.FileRead) && mode != string(abi.FileWrite) {
			return nil, false, &usageError{fmt.Errorf("--folder %s: expected PATH, PATH:read or PATH:write", folder), ""}
		}
		need := abi.FileNeed{Path: path, Mode: abi.FileMode(mode)}
		if !given {
			need.Mode = abi.FileRead
		}
		writes = writes || need.Mode == abi.FileWrite
		folders = append(folders, need)
	}
	return folders, writes, nil
}

// variables returns the environment variables with constant values.
func (f programFlags) variables() (map[string]string, error) {
	env := map[string]string{}
	for _, v := range f.env {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return nil, &usageError{fmt.Errorf("--env %s: expected NAME=VALUE", v), ""}
		}
		if !utf8.ValidString(v) {
			return nil, &usageError{fmt.Errorf("--env %q: %w", v, errNotUTF8), ""}
		}
		env[name] = value
	}
	return env, nil
}

// try calls the tool with the example, and shows the outcome. If a second call has the same
// result, the example becomes part of the manifest.
func (f programFlags) try(ctx context.Context, a *app, p *program, work string) error {
	args, err := f.arguments(ctx, a, p.line)
	if err != nil {
		return err
	}
	r, done, err := rehearse(ctx, a, filepath.Join(work, p.name+".wasm"))
	if err != nil {
		return err
	}
	defer done()
	r.seed = filepath.Join(filepath.Dir(p.file), "testdata")

	var results [2]abi.Result
	for i := range results {
		var stdout, stderr bytes.Buffer
		session, err := r.reset()
		if err != nil {
			return err
		}
		results[i], err = r.Call(ctx, server.Request{Session: session, Tool: r.plugin.Tools[0].Name, Args: json.RawMessage(args), Stdout: &stdout, Stderr: &stderr})
		if i == 0 {
			printTried(a, p.name, args, results[0], stderr.Bytes())
		}
		if ctx.Err() != nil || results[i].Kind != abi.Success {
			return &hintError{fmt.Errorf("the try failed, and nothing was added: %s", ends(results[i], err)), f.tryHint(results[i], stdout.Bytes())}
		}
	}

	if why := notExample(results[0], results[1], r.folders); why != "" {
		a.notef("toolhost: the result did not become an example of the manifest: %s", why)
		return nil
	}
	sidecar, err := f.manifest(p.name, p.line, args, results[0].Value)
	if err != nil {
		return err
	}
	if !isExample(sidecar, results[0].Value) {
		a.notef("toolhost: the result did not become an example of the manifest: it has numbers or keys that YAML cannot keep")
		return nil
	}
	p.sidecar = sidecar
	return owned.WriteFile(filepath.Join(work, p.sidecarName()), sidecar)
}

// isExample reports whether a sidecar contains an example that reads back with this result.
func isExample(sidecar []byte, result json.RawMessage) bool {
	value, err := document.Decode(".yaml", sidecar)
	if err != nil {
		return false
	}
	data, err := json.Marshal(value)
	if err != nil {
		return false
	}
	var m abi.Manifest
	err = json.Unmarshal(data, &m)
	return err == nil && sameValue(m.Tools[0].Examples[0].Result, result)
}

// maxExample is the maximum size of a result that becomes an example in a manifest, in bytes.
const maxExample = 2 << 10

// arguments returns the arguments to try.
func (f programFlags) arguments(ctx context.Context, a *app, t template) (string, error) {
	args := map[string]json.RawMessage{}
	if f.example != "" {
		if err := json.Unmarshal([]byte(f.example), &args); err != nil {
			return "", &usageError{fmt.Errorf("--example: expected a JSON object: %w", err), ""}
		}
	}
	if t.stdin != "" && args[t.stdin] == nil && !a.asks() {
		text, err := readUntil(ctx, io.LimitReader(a.in, server.MaxArgs))
		if err != nil {
			return "", err
		}
		if len(text) > 0 {
			args[t.stdin], _ = json.Marshal(string(text)) // a string
		}
	}

	var missing []string
	for _, p := range t.params {
		if args[p.name] == nil && !p.optional && p.kind != "boolean" {
			missing = append(missing, fmt.Sprintf("%q: …", p.name))
		}
	}
	if missing != nil {
		return "", &usageError{errors.New("the program is tried before it is added, and an argument for that is missing"),
			"add --example '{" + strings.Join(missing, ", ") + "}', or --untried"}
	}
	text, err := json.Marshal(args)
	return string(text), err
}

// printTried prints the outcome of a try.
func printTried(a *app, tool, args string, r abi.Result, stderr []byte) {
	a.printf("%s %s\n", tool, brief(json.RawMessage(args)))
	if r.Kind == abi.Success && (len(r.Value) > 0 || len(r.Content) == 0) {
		a.printf("  result  %s\n", brief(r.Value))
	}
	for _, c := range r.Content {
		a.printf("  result  %s, %s\n", c.Type, c.MIMEType)
	}
	if r.ExitCode != nil {
		a.printf("  code    %d\n", *r.ExitCode)
	}
	if len(stderr) > 0 {
		a.printf("  stderr  %s\n", short(oneLine(string(stderr)), 300))
	}
	cost := measured(r.Usage)
	a.printf("  cost    %s fuel, %s, %s\n", cost[0], cost[1], cost[2])
}

// tryHint suggests what may help after a failed try.
func (f programFlags) tryHint(r abi.Result, stdout []byte) string {
	media, binary := http.DetectContentType(stdout), f.output == "" && !utf8.Valid(stdout)
	switch {
	case r.ExitCode != nil && *r.ExitCode != 0 && len(stdout) > 0:
		return fmt.Sprintf("if the code %d is a result, as with linters: --success 0,%d", *r.ExitCode, *r.ExitCode)
	case binary && strings.HasPrefix(media, "image/"):
		return "the output is an image: --output " + media
	case binary:
		return "for output that is no text: --output base64"
	case len(f.folders) > 0:
		return "a try sees a copy of testdata/PATH next to the file as the folder PATH"
	}
	return "see docs/plugins.md, “A program as it is”"
}

// notExample says why the result of a try cannot be an example; empty if it can.
func notExample(one, again abi.Result, folders []host.Mount) string {
	switch {
	case len(folders) > 0:
		return "its folders are not those of toolhost test"
	case len(one.Content) > 0:
		return "it is no JSON value"
	case len(one.Value) > maxExample:
		return fmt.Sprintf("it has more than %d bytes", maxExample)
	case !sameValue(one.Value, again.Value):
		return "it differs from call to call"
	}
	return ""
}

// folder returns the folder to which the program is added.
func (f programFlags) folder(a *app) (string, error) {
	if f.to != "" {
		return filepath.Abs(f.to)
	}
	if own := a.config.ownFolders(); len(own) > 0 {
		return own[0], nil
	}
	return "", &usageError{errors.New("no folder of plugins is configured"), "name one with --to"}
}

// ownFolders returns the folders to which plugins are added, and from which they are removed: the
// configured folders, or else a folder of the user's own.
func (c *config) ownFolders() (folders []string) {
	for _, source := range c.plugins {
		if _, err := registry.ParseReference(source); err != nil {
			folders = append(folders, source)
		}
	}
	if data := userData(); data != "" && folders == nil {
		folders = append(folders, filepath.Join(data, "plugins"))
	}
	return folders
}

// vacant returns an error if a folder already has a file with the program's name.
func (p program) vacant(a *app, folder string) error {
	remove := "toolhost remove --plugin " + p.name
	if !slices.Contains(a.config.ownFolders(), folder) {
		remove += " --plugins " + folder
	}
	hint := remove + " deletes it; or choose another --name"
	file := filepath.Join(folder, p.name+".wasm")
	switch _, err := os.Lstat(file); {
	case err == nil:
		return &usageError{fmt.Errorf("%s exists", file), hint}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if len(plugins.Sidecars(os.DirFS(folder), p.name+".wasm")) > 0 {
		return &usageError{fmt.Errorf("%s has a manifest of %s", folder, p.name), hint}
	}
	return nil
}

func (p program) sidecarName() string { return p.name + ".toolhost.yaml" }

// write writes the program and its manifests into a folder. If it fails, it leaves nothing there.
func (p program) write(folder string) (err error) {
	var written []string
	defer func() {
		for _, name := range written {
			if err != nil {
				_ = os.Remove(name)
			}
		}
	}()
	write := func(name string, data []byte) error {
		name = filepath.Join(folder, name)
		err := owned.WriteFile(name, data)
		if err == nil {
			written = append(written, name)
		}
		return err
	}

	if p.sidecar != nil {
		if err := write(p.sidecarName(), p.sidecar); err != nil {
			return err
		}
	}
	for _, name := range p.endings {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(p.file), name))
		if err == nil {
			err = write(name, data)
		}
		if err != nil {
			return err
		}
	}
	return write(p.name+".wasm", p.wasm) // last: a server sees it with its manifest
}

// install copies the program into a folder, adds the folder to the configuration, and shows what
// to do next.
func (p program) install(ctx context.Context, a *app, to string) error {
	if err := p.write(to); err != nil {
		return err
	}
	a.printf("added %s to %s, %s\n", p.name, oneLine(to), human.Bytes(int64(len(p.wasm))))

	if !slices.Contains(a.config.plugins, to) {
		name, err := configEditor{a}.add(to)
		if err != nil {
			return err
		}
		a.printf("added the folder to %s\n", oneLine(name))
	}
	if err := a.load(a.flags); err != nil {
		return err
	}
	loaded, err := a.loadFile(ctx, plugins.Dir(to), p.name+".wasm")
	if err != nil {
		return err
	}
	if err := acceptAdded(ctx, a, loaded.Manifest.Name); err != nil {
		return err
	}
	if p.sidecar != nil {
		a.printf("describe the tool and its arguments to models in %s\n", oneLine(filepath.Join(to, p.sidecarName())))
	}
	if lines := a.config.lacking(loaded); lines != "" {
		a.printf("to grant what it needs, %s\n%s", a.config.addTo(), lines)
	}
	return nil
}
