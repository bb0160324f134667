package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/schema"
)

// MaxWasm is the largest plugin file that is loaded, in bytes.
const MaxWasm = 64 << 20

// loader reads folders and collects what is wrong with them.
type loader struct {
	host     *host.Host
	cfg      Config
	problems []Problem
}

// Load loads one file of a folder, with nothing granted, and returns what is
// worth knowing beside it.
func Load(ctx context.Context, h *host.Host, folder Folder, name, cacheDir string) (*Plugin, []Problem, error) {
	l := &loader{host: h, cfg: Config{CacheDir: cacheDir}}
	p, err := l.plugin(ctx, folder, strings.TrimSuffix(name, ".wasm"))
	return p, l.problems, err
}

func (l *loader) problem(file string, err error) {
	l.problems = append(l.problems, Problem{file, err})
}

func (l *loader) folder(ctx context.Context, folder Folder) []*Plugin {
	entries, err := fs.ReadDir(folder.FS, ".")
	if err != nil {
		l.problem(folder.Path, fmt.Errorf("the folder cannot be read: %w", unpath(err)))
		return nil
	}
	slices.SortFunc(entries, byName)
	var found []*Plugin
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || e.IsDir() {
			continue
		}
		file := path.Join(folder.Path, name)
		if stem, ok := strings.CutSuffix(name, ".wasm"); ok {
			p, err := l.plugin(ctx, folder, stem)
			if err != nil {
				l.problem(file, err)
				continue
			}
			found = append(found, p)
			continue
		}
		for _, ending := range sidecars {
			if stem, ok := strings.CutSuffix(name, ending); ok {
				if _, err := fs.Stat(folder.FS, stem+".wasm"); err != nil {
					l.problem(file, fmt.Errorf("there is no %s.wasm beside it", stem))
				}
			}
		}
	}
	return found
}

// unpath drops the path from an error that is reported with one.
func unpath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (l *loader) plugin(ctx context.Context, folder Folder, stem string) (*Plugin, error) {
	p := &Plugin{File: path.Join(folder.Path, stem+".wasm"), host: l.host, folder: folder.FS, name: stem + ".wasm"}
	if err := l.read(ctx, p, stem); err != nil {
		_ = p.close(ctx) // describe may have compiled it
		return nil, err
	}
	return p, nil
}

// read fills in what the files of a plugin say.
func (l *loader) read(ctx context.Context, p *Plugin, stem string) error {
	wasm, err := readFile(p.folder, p.name, MaxWasm)
	if err != nil {
		return err
	}
	if p.Info, err = l.host.Inspect(wasm); err != nil {
		return err
	}
	document, err := l.manifest(ctx, p, wasm, stem)
	if err != nil {
		return err
	}
	if p.Manifest, err = abi.DecodeManifest(document); err != nil {
		return fmt.Errorf("%s: %w", p.Source, err)
	}
	if err := p.tools(); err != nil {
		return fmt.Errorf("%s: %w", p.Source, err)
	}
	p.Grant = l.cfg.Grants[p.Manifest.Name]
	p.Missing = p.Grant.Missing(p.Manifest.Needs)
	return nil
}

func readFile(folder fs.FS, name string, most int64) ([]byte, error) {
	info, err := fs.Stat(folder, name)
	if err != nil {
		return nil, unpath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("expected a file")
	}
	if info.Size() > most {
		return nil, fmt.Errorf("the file has %d bytes, and at most %d are read", info.Size(), most)
	}
	data, err := fs.ReadFile(folder, name)
	return data, unpath(err)
}

// manifest returns the manifest as JSON: from the custom section, a sidecar, or
// the plugin's own describe, in this order.
func (l *loader) manifest(ctx context.Context, p *Plugin, wasm []byte, stem string) ([]byte, error) {
	name, sidecar, err := l.sidecar(p, stem)
	if p.Info.Manifest != nil {
		if name != "" {
			l.problem(path.Join(path.Dir(p.File), name), errors.New("ignored: the module has a manifest of its own"))
		}
		p.Source = "custom section " + abi.SectionManifest
		return p.Info.Manifest, nil
	}
	if err != nil {
		return nil, err
	}
	if name != "" {
		p.Source = name
		return sidecar, nil
	}
	p.Source = abi.ExportDescribe
	return l.describe(ctx, p, wasm)
}

// describe asks the plugin itself, once for each digest.
func (l *loader) describe(ctx context.Context, p *Plugin, wasm []byte) ([]byte, error) {
	var cached string
	if l.cfg.CacheDir != "" {
		cached = filepath.Join(l.cfg.CacheDir, "manifest-"+p.Info.Digest+".json")
		if document, err := os.ReadFile(cached); err == nil && json.Valid(document) {
			return document, nil
		}
	}
	if !p.Info.Describe {
		return nil, host.ErrNoManifest
	}
	module, err := l.host.Compile(ctx, wasm)
	if err != nil {
		return nil, err
	}
	p.module = module
	document, err := l.host.Describe(ctx, module)
	if err != nil {
		return nil, err
	}
	if cached != "" {
		if err := writeFile(cached, document); err != nil {
			l.problem(cached, fmt.Errorf("the manifest cannot be cached: %w", unpath(err)))
		}
	}
	return document, nil
}

// writeFile writes a file that other processes may read at any moment.
func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), ".manifest-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

// tools compiles the schemas of the plugin's tools.
func (p *Plugin) tools() error {
	for i := range p.Manifest.Tools {
		t := &Tool{Tool: &p.Manifest.Tools[i], Plugin: p}
		t.Name = abi.AgentName(p.Manifest.Name, t.Tool.Name)
		at := fmt.Sprintf("/tools/%d", i)
		var err error
		if t.input, err = schema.Compile(t.Tool.InputSchema); err != nil {
			return fmt.Errorf("%s/input_schema: %w", at, err)
		}
		if t.Tool.OutputSchema != nil {
			if t.output, err = schema.Compile(t.Tool.OutputSchema); err != nil {
				return fmt.Errorf("%s/output_schema: %w", at, err)
			}
		}
		p.Tools = append(p.Tools, t)
	}
	return nil
}
