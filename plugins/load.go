package plugins

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// loader reads folders and collects problems.
type loader struct {
	host     *host.Host
	cfg      Config
	digests  *digests
	problems []Problem

	lock      *lock.File        // lock in force; nil accepts everything
	replaced  *Plugin           // the accepted version of the current file, if it was needed
	before    map[place]*Plugin // plugins of the earlier reading
	anySigner bool              // whether the signer may differ from the accepted one

	compilations      *sync.WaitGroup
	ctx               context.Context // context of describing
	undescribed       []*Plugin       // see set
	undescribedBefore map[place]*Plugin
}

func newLoader(ctx context.Context, h *host.Host, cfg Config) *loader {
	l := &loader{host: h, cfg: cfg, ctx: ctx, compilations: new(sync.WaitGroup)}
	if cfg.CacheDir == "" {
		return l
	}
	_ = os.MkdirAll(cfg.CacheDir, 0o700) // errors are reported where it is written to
	if err := owned.Folder(cfg.CacheDir); errors.Is(err, owned.ErrUnsafe) {
		l.problem(cfg.CacheDir, fmt.Errorf("the cache is not used: %w", err))
		l.cfg.CacheDir = ""
	}
	return l
}

// loader returns a loader for all folders, after an earlier reading.
func (r *Registry) loader(ctx context.Context, before *set, cfg Config) *loader {
	l := newLoader(ctx, r.host, cfg)
	if r.digests == nil {
		r.digests = openDigests(l.cfg.CacheDir)
	}
	l.digests, l.compilations = r.digests, &r.compilations
	l.before, l.undescribedBefore = byPlace(before.plugins), byPlace(before.undescribed)
	return l
}

func byPlace(plugins []*Plugin) map[place]*Plugin {
	places := map[place]*Plugin{}
	for _, p := range plugins {
		places[p.at] = p
	}
	return places
}

// Load loads one file from the first folder of cfg. It also returns problems that did
// not prevent loading it.
func Load(ctx context.Context, h *host.Host, cfg Config, name string) (*Plugin, []Problem, error) {
	l := newLoader(ctx, h, cfg)
	l.digests = openDigests(l.cfg.CacheDir)
	p, err := l.plugin(0, cfg.Folders[0], strings.TrimSuffix(name, ".wasm"))
	return p, l.problems, err
}

func (l *loader) problem(file string, err error) {
	l.problems = append(l.problems, Problem{file, err})
}

func (l *loader) folder(ctx context.Context, i int, folder Folder) []*Plugin {
	entries, err := fs.ReadDir(folder.FS, ".") // sorted
	if err != nil {
		l.problem(folder.Path, folder.unreadable(err))
		return l.keepFolder(i, folder, err)
	}

	ones := make([]loader, len(entries))
	plugins := make([]*Plugin, len(entries))

	each(ctx, len(entries), func(n int) {
		ones[n] = *l
		ones[n].problems, ones[n].undescribed = nil, nil
		plugins[n] = ones[n].file(i, folder, entries[n])
	})

	for _, one := range ones {
		l.problems = append(l.problems, one.problems...)
		l.undescribed = append(l.undescribed, one.undescribed...)
	}
	return slices.DeleteFunc(plugins, func(p *Plugin) bool { return p == nil })
}

// unread reports whether a folder could not be read.
func (l *loader) unread(folder Folder) bool {
	return slices.ContainsFunc(l.problems, func(p Problem) bool { return p.File == folder.Path })
}

// unreadable returns why nothing is loaded from a folder.
func (f Folder) unreadable(err error) error {
	if f.single { // its errors name it already
		return unpath(err)
	}
	switch {
	case errors.Is(err, owned.ErrUnsafe):
		return fmt.Errorf("no plugin is loaded from the folder: %w", err)
	case errors.Is(err, syscall.ENOTDIR):
		return errors.New("not a folder: name the folder that contains the plugin")
	}
	return fmt.Errorf("the folder cannot be read: %w", unpath(err))
}

// file loads an entry of a folder. It returns nil if that is not a plugin.
func (l *loader) file(i int, folder Folder, entry fs.DirEntry) *Plugin {
	name := entry.Name()
	if strings.HasPrefix(name, ".") || entry.IsDir() {
		return nil
	}
	file := folder.file(name)
	if stem, ok := strings.CutSuffix(name, ".wasm"); ok {
		p, err := l.plugin(i, folder, stem)
		if err != nil {
			p, err = l.keep(place{i, name}, folder, err)
			l.problem(file, err)
		}
		return p
	}

	for _, ending := range sidecars {
		if stem, ok := strings.CutSuffix(name, ending); ok {
			if _, err := fs.Stat(folder.FS, stem+".wasm"); err != nil {
				l.problem(file, fmt.Errorf("there is no %s.wasm next to it", stem))
			}
		}
	}

	return nil
}

// unpath removes the path from an error that is reported with a path.
func unpath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (l *loader) plugin(i int, folder Folder, stem string) (*Plugin, error) {
	name := stem + ".wasm"
	at, accepted := place{i, name}, l.accepted(folder.LockSource(), name)
	if before := l.before[at]; before != nil && !before.kept && l.same(before) && l.sameLock(before, accepted) && l.sameSettings(before) {
		before.held.Store(false)
		l.problems = append(l.problems, before.notes...)
		return before, nil
	}

	p := l.newPlugin(at, folder)
	p.locked = accepted
	if err := l.read(p, stem); err != nil {
		return nil, err
	}
	l.problems = append(l.problems, p.notes...)
	l.keepAccepted(p)
	return p, nil
}

// newPlugin returns an unread plugin at a place.
func (l *loader) newPlugin(at place, folder Folder) *Plugin {
	return &Plugin{
		File: folder.file(at.name), Pack: folder.Pack, at: at, from: folder, folder: folder.FS, name: at.name,
		builtIn: folder.BuiltIn, source: cmp.Or(folder.source, folder.Path),
		host: l.host, digests: l.digests, compilations: l.compilations,
	}
}

// read fills in a plugin from its files.
func (l *loader) read(p *Plugin, stem string) error {
	err := l.fill(p, stem)
	if err != nil && p.description != nil {
		l.undescribed = append(l.undescribed, p)
	}
	return err
}

// fill is like read, but does not record the description. It reads the whole module only if its
// signature counts, or if it was changed a moment ago: its stamp might then not show the next
// change, so its digest is needed.
func (l *loader) fill(p *Plugin, stem string) error {
	wasm, err := l.scan(p)
	if err != nil {
		return err
	}
	refused := l.checkModule(p)
	document, err := l.manifest(p, stem, wasm, refused)
	if err != nil {
		return err
	}

	if p.Manifest, err = abi.DecodeManifest(document); err == nil {
		err = p.Info.CheckTools(p.Manifest)
	}
	if err == nil {
		if err := l.checkAccepted(p, refused); err != nil {
			return err
		}
		err = p.tools()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Source, err)
	}

	if err := host.CheckNeeds(p.Manifest); err != nil {
		return fmt.Errorf("%s: %w", p.Source, err)
	}
	p.interpret = l.interprets(p)
	p.granted = l.cfg.Grants[p.Manifest.Name]
	p.Grant = l.within(p)
	p.compareNeeds()
	return p.checkConfig()
}

// checkConfig compiles the schema of the plugin's settings. Settings that do not fit are
// reported as a problem, for the operator.
func (p *Plugin) checkConfig() error {
	if p.Manifest.ConfigSchema == nil {
		return nil
	}
	s, err := schema.CompileArgs(p.Manifest.ConfigSchema)
	if err != nil {
		return fmt.Errorf("%s: /config_schema: %w", p.Source, err)
	}
	if p.Denied() != nil { // it is not called
		return nil
	}

	config := p.Grant.Config
	if config == nil {
		config = map[string]string{}
	}
	text, _ := json.Marshal(config) // strings
	object, err := strictjson.Parse(text)
	if err != nil {
		return err
	}
	if _, _, problems := s.Fit(object); len(problems) > 0 {
		p.notes = append(p.notes, Problem{p.File, &ConfigError{p.Manifest.Name, problems}})
	}
	return nil
}

// checkAccepted refuses a plugin whose signer is not trusted with it, or that differs from
// the lock.
func (l *loader) checkAccepted(p *Plugin, refused error) (err error) {
	if l.verifies(p) {
		if p.Signer, err = l.cfg.Verifier.Check(p.Manifest.Name, p.source, p.Signer); err != nil {
			return err
		}
	}
	return l.checkLock(p, refused)
}

// scan reads the Info of a module. It returns the bytes if it had to read all of them.
func (l *loader) scan(p *Plugin) (wasm []byte, err error) {
	file, s, err := openFile(p.folder, p.name, l.host.PluginSize())
	if errors.As(err, new(*sizeError)) {
		err = fmt.Errorf("%w: the setting host.plugin_size allows more", err)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p.stamp, p.seen = s, s

	at, ok := file.(io.ReaderAt)
	if !ok || s.settled == "" || l.verifies(p) {
		if wasm, err = readAll(file, s); err != nil {
			return nil, err
		}
		p.learn(s, digestOf(wasm)) // an unsettled stamp is not cached
		at = bytes.NewReader(wasm)
	}
	p.Info, err = l.host.Scan(at, s.size)
	return wasm, unpath(err)
}

// interprets reports whether a plugin is to be interpreted.
func (l *loader) interprets(p *Plugin) bool {
	return slices.ContainsFunc(l.cfg.Interpret, func(name string) bool { return name == allPlugins || name == p.Manifest.Name })
}

// openFile opens a file. It refuses one of more than most bytes.
func openFile(folder fs.FS, name string, most int64) (fs.File, stamp, error) {
	info, err := fs.Stat(folder, name) // opening a device may have side effects
	if err == nil && !info.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		return nil, stamp{}, unpath(err)
	}
	file, err := folder.Open(name)
	if err != nil {
		return nil, stamp{}, unpath(err)
	}

	info, err = file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular(): // it has replaced the file
		err = errNoFile
	case info.Size() > most:
		err = &sizeError{info.Size(), most}
	default:
		return file, stampOf(info), nil
	}

	_ = file.Close()
	return nil, stamp{}, unpath(err)
}

// sizeError is the error of a file that is too large.
type sizeError struct{ size, most int64 }

func (e *sizeError) Error() string {
	return fmt.Sprintf("the file has %d bytes, expected at most %d", e.size, e.most)
}

// readAll reads an open file, and checks that its size has not changed.
func readAll(file fs.File, s stamp) ([]byte, error) {
	data := make([]byte, s.size)
	_, err := io.ReadFull(file, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return nil, errors.New("the file ends before its size: is it being written?")
	}
	return data, unpath(err)
}

var errNoFile = errors.New("expected a file")

func readFile(folder fs.FS, name string, most int64) ([]byte, stamp, error) {
	file, s, err := openFile(folder, name, most)
	if err != nil {
		return nil, s, err
	}
	defer file.Close()
	data, err := readAll(file, s)
	return data, s, err
}

// manifest returns the manifest as JSON: from the custom section, a sidecar, or the
// plugin's describe function, in this order. The signature is verified before the
// plugin may run. A refused plugin does not run.
func (l *loader) manifest(p *Plugin, stem string, wasm []byte, refused error) ([]byte, error) {
	side, err := p.sidecar()
	if p.Info.Manifest != nil {
		l.ignored(p, side.name)
		side, err = sidecarFile{}, nil
	}
	if err == nil {
		err = l.verify(p, wasm, side)
	}
	if err != nil {
		return nil, err
	}

	switch {
	case p.Info.Manifest != nil:
		p.Source = "custom section " + abi.SectionManifest
		return p.Info.Manifest, nil
	case side.name != "":
		p.Source, p.beside = side.name, digestOf(side.manifest)
		return side.manifest, nil
	case refused != nil:
		return nil, refused
	}

	p.Source = abi.ExportDescribe
	document, err := l.describe(p)
	if err == nil && p.Info.MCP != "" {
		p.Source = string(p.Info.MCP)
		return host.MCPManifest(stem, document)
	}
	return document, err
}

// ignored reports an unused sidecar.
func (l *loader) ignored(p *Plugin, sidecar string) {
	if sidecar != "" {
		l.problem(path.Join(path.Dir(p.File), sidecar), errors.New("ignored: the module has a manifest of its own"))
	}
}

// CheckSchemas returns an error if a schema of a manifest's tools is invalid. A plugin
// with such a schema is not loaded.
func CheckSchemas(m *abi.Manifest) error { return (&Plugin{Manifest: m}).tools() }

// tools compiles the schemas of the plugin's tools.
func (p *Plugin) tools() error {
	for i := range p.Manifest.Tools {
		t := &Tool{Tool: &p.Manifest.Tools[i], Plugin: p, Name: p.agentName(&p.Manifest.Tools[i])}
		var err error
		if t.input, err = schema.CompileArgs(t.InputSchema); err != nil {
			return fmt.Errorf("/tools/%d/input_schema (tool %q): %w", i, t.Tool.Name, err)
		}
		if t.OutputSchema != nil {
			if t.output, err = schema.Compile(t.OutputSchema); err != nil {
				return fmt.Errorf("/tools/%d/output_schema (tool %q): %w", i, t.Tool.Name, err)
			}
		}

		p.Tools = append(p.Tools, t)
	}

	return nil
}

// each calls do for each number below n, on as many goroutines as there are
// processors. Once ctx is done it starts no more. It waits for all that it
// started.
func each(ctx context.Context, n int, do func(i int)) {
	var workers sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := 0; i < n && ctx.Err() == nil; i++ {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	workers.Wait()
}
