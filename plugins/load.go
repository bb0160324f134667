package plugins

import (
	"bytes"
	"context"
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

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/schema"
)

// MaxWasm is the largest plugin file that is loaded, in bytes.
const MaxWasm = 64 << 20

// loader reads folders and collects problems.
type loader struct {
	host     *host.Host
	cfg      Config
	digests  *digests
	problems []Problem

	before     map[place]*Plugin // of the earlier reading
	lateBefore map[place]*Plugin

	compilations *sync.WaitGroup
	describing   context.Context // done when the time for describing is over
	late         []*Plugin       // see set
}

func newLoader(h *host.Host, cfg Config) *loader {
	l := &loader{host: h, cfg: cfg, describing: context.Background(), compilations: new(sync.WaitGroup)}
	if cfg.CacheDir == "" {
		return l
	}
	_ = os.MkdirAll(cfg.CacheDir, 0o700) // what is wrong with it is known where it is written to
	if err := owned.Folder(cfg.CacheDir); errors.Is(err, owned.ErrUnsafe) {
		l.problem(cfg.CacheDir, fmt.Errorf("the cache is not used: %w", err))
		l.cfg.CacheDir = ""
	}
	return l
}

// loader is one for all folders, after an earlier reading.
func (r *Registry) loader(before *set) *loader {
	l := newLoader(r.host, r.cfg)
	if r.digests == nil {
		r.digests = openDigests(l.cfg.CacheDir)
	}
	l.digests, l.compilations = r.digests, &r.compilations
	l.before, l.lateBefore = byPlace(before.plugins), byPlace(before.late)
	return l
}

func byPlace(plugins []*Plugin) map[place]*Plugin {
	places := map[place]*Plugin{}
	for _, p := range plugins {
		places[p.at] = p
	}
	return places
}

// Load loads one file of the first folder of cfg. It also returns problems that did not
// prevent loading it.
func Load(ctx context.Context, h *host.Host, cfg Config, name string) (*Plugin, []Problem, error) {
	l := newLoader(h, cfg)
	l.describing = ctx
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
		l.problem(folder.Path, unreadable(err))
		return l.keepFolder(i, err)
	}

	ones := make([]loader, len(entries))
	plugins := make([]*Plugin, len(entries))

	each(ctx, len(entries), func(n int) {
		ones[n] = *l
		ones[n].problems, ones[n].late = nil, nil
		plugins[n] = ones[n].file(i, folder, entries[n])
	})

	for _, one := range ones {
		l.problems = append(l.problems, one.problems...)
		l.late = append(l.late, one.late...)
	}
	return slices.DeleteFunc(plugins, func(p *Plugin) bool { return p == nil })
}

// unreadable says why nothing is loaded from a folder.
func unreadable(err error) error {
	if errors.Is(err, owned.ErrUnsafe) {
		return fmt.Errorf("no plugin is loaded from the folder: %w", err)
	}
	return fmt.Errorf("the folder cannot be read: %w", unpath(err))
}

// file loads an entry of a folder. It returns nil if that is not a plugin.
func (l *loader) file(i int, folder Folder, entry fs.DirEntry) *Plugin {
	name := entry.Name()
	if strings.HasPrefix(name, ".") || entry.IsDir() {
		return nil
	}
	file := path.Join(folder.Path, name)
	if stem, ok := strings.CutSuffix(name, ".wasm"); ok {
		p, err := l.plugin(i, folder, stem)
		if err != nil {
			p, err = l.keep(place{i, name}, err)
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

// unpath drops the path from an error that is reported with one.
func unpath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (l *loader) plugin(i int, folder Folder, stem string) (*Plugin, error) {
	name := stem + ".wasm"
	if before := l.before[place{i, name}]; before != nil && l.same(before, stem) && l.samePin(before) && l.sameGrant(before) {
		before.held.Store(false)
		return before, nil
	}
	p := &Plugin{File: path.Join(folder.Path, name), at: place{i, name}, host: l.host, digests: l.digests, compilations: l.compilations, folder: folder.FS, name: name}
	if err := l.read(p, stem); err != nil {
		return nil, err
	}
	return p, nil
}

// read fills in a plugin from its files. It reads the whole module only if that was
// changed a moment ago: its stamp might not show the next change, so that its digest
// is needed.
func (l *loader) read(p *Plugin, stem string) error {
	file, s, err := openFile(p.folder, p.name, MaxWasm)
	if err != nil {
		return err
	}
	defer file.Close()
	p.stamp, p.seen = s, s
	at, ok := file.(io.ReaderAt)
	if !ok || s.settled == "" {
		wasm, err := readAll(file, s)
		if err != nil {
			return err
		}
		p.learn(s, digestOf(wasm)) // an unsettled stamp is not cached
		at = bytes.NewReader(wasm)
	}
	if p.Info, err = l.host.Scan(at, s.size); err != nil {
		return unpath(err)
	}

	document, err := l.manifest(p, stem)
	if err != nil {
		return err
	}
	if p.Manifest, err = abi.DecodeManifest(document); err == nil {
		if err := l.checkPin(p); err != nil {
			return err
		}
		err = p.tools()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Source, err)
	}

	if err := host.CheckNeeds(p.Manifest.Needs); err != nil {
		return fmt.Errorf("%s: %w", p.Source, err)
	}
	p.interpret = slices.ContainsFunc(l.cfg.Interpret, func(name string) bool { return name == allPlugins || name == p.Manifest.Name })
	p.Grant = l.cfg.Grants[p.Manifest.Name]
	p.Missing = p.Grant.Missing(p.Manifest.Needs)
	return nil
}

// openFile opens a file of at most so many bytes.
func openFile(folder fs.FS, name string, most int64) (fs.File, stamp, error) {
	info, err := fs.Stat(folder, name) // to open a device may do something
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
	case !info.Mode().IsRegular(): // it took the file's place
		err = errNoFile
	case info.Size() > most:
		err = fmt.Errorf("the file has %d bytes, expected at most %d", info.Size(), most)
	default:
		return file, stampOf(info), nil
	}

	_ = file.Close()
	return nil, stamp{}, unpath(err)
}

// readAll reads an open file that has the size it had.
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

// manifest returns the manifest as JSON: from the custom section, a sidecar, or
// the plugin's own describe, in this order.
func (l *loader) manifest(p *Plugin, stem string) ([]byte, error) {
	name, sidecar, err := l.sidecar(p, stem)
	switch {
	case p.Info.Manifest != nil:
		l.ignored(p, name)
		p.Source = "custom section " + abi.SectionManifest
		return p.Info.Manifest, nil
	case err != nil:
		return nil, err
	case name != "":
		p.Source, p.beside = name, digestOf(sidecar)
		return sidecar, nil
	}

	p.Source = abi.ExportDescribe
	return l.describe(p)
}

// ignored reports an unused sidecar.
func (l *loader) ignored(p *Plugin, sidecar string) {
	if sidecar != "" {
		l.problem(path.Join(path.Dir(p.File), sidecar), errors.New("ignored: the module has a manifest of its own"))
	}
}

// tools compiles the schemas of the plugin's tools.
func (p *Plugin) tools() error {
	for i := range p.Manifest.Tools {
		t := &Tool{Tool: &p.Manifest.Tools[i], Plugin: p, Name: abi.AgentName(p.Manifest.Name, p.Manifest.Tools[i].Name)}
		var err error
		if t.input, err = schema.CompileArgs(t.InputSchema); err != nil {
			return fmt.Errorf("/tools/%d/input_schema: %w", i, err)
		}
		if t.OutputSchema != nil {
			if t.output, err = schema.Compile(t.OutputSchema); err != nil {
				return fmt.Errorf("/tools/%d/output_schema: %w", i, err)
			}
		}

		p.Tools = append(p.Tools, t)
	}

	return nil
}

// each calls do for each number below n, on as many goroutines as there are
// processors. It starts no more once ctx is done, and waits for those it started.
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
