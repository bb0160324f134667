package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// A rehearsal is an environment in which the author of a plugin calls its tools under the
// limits of the configuration. It grants the plugin's needs for the clock, randomness and
// stores, which start empty, as well as copies of the folders below testdata, and the
// environment variables that the plugin needs. Anything that reaches further is granted
// only by the configuration.
type rehearsal struct {
	*server.Service
	plugin  *plugins.Plugin
	seed    string       // testdata folder with the originals
	folders []host.Mount // copies of the folders, as mounted
	calls   int
}

// rehearse loads and compiles a plugin file. It fails if tools with examples lack grants
// that only the configuration can give. done releases everything.
func rehearse(ctx context.Context, a *app, name string) (r *rehearsal, done func(), err error) {
	if filepath.Ext(name) != ".wasm" {
		return nil, nil, &usageError{errors.New(name + ": expected a file that ends in .wasm"), "toolhost build FOLDER makes it"}
	}
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &usageError{fmt.Errorf("there is no file %s", name), "toolhost build FOLDER makes it"}
	} else if err != nil {
		return nil, nil, err
	}
	cfg, err := a.serviceConfig()
	if err != nil {
		return nil, nil, err
	}
	dir, base := filepath.Dir(name), filepath.Base(name)
	cfg.Folders = []plugins.Folder{{Path: dir, FS: onePlugin{os.DirFS(dir), strings.TrimSuffix(base, ".wasm")}}} // anyone may have written it
	cfg.Park, cfg.Lock, cfg.Verifier = server.ParkNever, plugins.Lock{}, nil
	cfg.Approve = func(context.Context, server.Approval) error { return nil }

	work, err := os.MkdirTemp("", "toolhost-test-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(work) }
	needs, plugin, err := needsOf(ctx, cfg, base)
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	r = &rehearsal{seed: filepath.Join(dir, "testdata")}
	cfg.Grants = map[string]plugins.Grant{plugin: r.grant(cfg.Grants[plugin], needs, work)}

	s, err := server.Open(ctx, cfg)
	if err != nil {
		remove()
		return nil, nil, err
	}
	done = func() { a.closeService(ctx, s); remove() }
	if found := s.Plugins(); len(found) == 1 {
		r.Service, r.plugin = s, found[0]
		if err = r.granted(a); err == nil {
			err = r.compile(ctx, a)
		}
	} else {
		a.warnOf(fileProblems(s.Problems()))
		err = fmt.Errorf("%s: the plugin was not loaded", name)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return r, done, nil
}

// needsOf returns all needs of a plugin and its tools, and its name.
func needsOf(ctx context.Context, cfg server.Config, base string) (needs abi.Needs, name string, err error) {
	cfg.Host.CacheDir, cfg.Host.Logger = cfg.CacheDir, cfg.Logger
	h, err := host.New(ctx, cfg.Host)
	if err != nil {
		return needs, "", err
	}
	defer h.Close(ctx)
	p, _, err := plugins.Load(ctx, h, plugins.Config{Folders: cfg.Folders, CacheDir: cfg.CacheDir}, base)
	if err != nil {
		return needs, "", err
	}
	return p.Manifest.AllNeeds().All(), p.Manifest.Name, nil
}

// grant returns the configured grants, plus those of the plugin's needs that a rehearsal
// can satisfy.
func (r *rehearsal) grant(g host.Grant, needs abi.Needs, work string) host.Grant {
	add := g.Lacking(needs)
	g.Clock, g.Random = g.Clock || add.Clock, g.Random || add.Random
	if add.Session != "" {
		g.Session = add.Session
	}
	if g.KV = (host.KV{}); needs.KV != "" {
		g.KV = host.KV{Mode: needs.KV, Scope: host.KVSession}
	}
	g.Env = maps.Clone(g.Env)
	for name := range add.Env {
		if value, ok := os.LookupEnv(name); ok {
			if g.Env == nil {
				g.Env = map[string]string{}
			}
			g.Env[name] = value
		}
	}

	g.Files = nil
	for i, f := range needs.Files {
		g.Files = append(g.Files, host.Mount{Path: f.Path, Dir: filepath.Join(work, fmt.Sprint(i)), Mode: f.Mode})
	}
	r.folders = g.Files
	return g
}

// reset restores the folders from testdata, and starts a new session.
func (r *rehearsal) reset() (session string, err error) {
	for _, m := range r.folders {
		if err := os.RemoveAll(m.Dir); err != nil {
			return "", err
		}
		if err := os.MkdirAll(m.Dir, 0o700); err != nil {
			return "", err
		}
		from := filepath.Join(r.seed, filepath.FromSlash(m.Path))
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.CopyFS(m.Dir, os.DirFS(from)); err != nil {
			return "", err
		}
	}
	r.calls++
	return fmt.Sprintf("test-%d", r.calls), nil
}

// unfilled says which folders of the plugin were empty because there was nothing to copy.
// The text is empty, or starts with a line break.
func (r *rehearsal) unfilled() (text string) {
	for _, m := range r.folders {
		from := filepath.Join(r.seed, filepath.FromSlash(m.Path))
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			text += fmt.Sprintf("\n  %s was empty: there is no %s", m.Path, from)
		}
	}
	return text
}

// state returns the files and values that the calls of a session have left behind.
func (r *rehearsal) state(ctx context.Context, session string) (map[string]string, error) {
	left := map[string]string{}
	for _, m := range r.folders {
		err := fs.WalkDir(os.DirFS(m.Dir), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				left[m.Path+"/"+name] = ""
				return err
			}
			data, err := os.ReadFile(filepath.Join(m.Dir, filepath.FromSlash(name)))
			left[m.Path+"/"+name] = fmt.Sprintf("%x", sha256.Sum256(data))
			return err
		})
		if err != nil {
			return nil, err
		}
	}

	values, kv := r.Session(session).Values(), r.KV()
	shared, err := values.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range shared.Values {
		one, err := values.Get(ctx, v.Key)
		if err != nil {
			return nil, err
		}
		left["session "+v.Key] = string(one.Value)
	}
	own, err := kv.Keys(ctx, r.plugin.Manifest.Name, session, "", "", 0)
	if err != nil && server.ReasonOf(err).Code == wire.CodeNotFound {
		return left, nil
	}
	for _, v := range own.Values {
		one, err := kv.Get(ctx, r.plugin.Manifest.Name, session, v.Key)
		if err != nil {
			return nil, err
		}
		left["kv "+v.Key] = string(one.Value)
	}
	return left, err
}

// compile compiles the plugin, and says so if the output goes to a terminal.
func (r *rehearsal) compile(ctx context.Context, a *app) error {
	progress := newBar(a.err)
	progress.set(0, 1, "compiling "+filepath.Base(r.plugin.File))
	defer progress.clear()
	return r.plugin.Compile(ctx)
}

// call calls a tool.
func (r *rehearsal) call(ctx context.Context, session string, tool *plugins.Tool, args []byte) (abi.Result, error) {
	return r.Call(ctx, server.Request{Session: session, Tool: tool.Name, Args: args})
}

// onePlugin is a folder that shows only the files belonging to one plugin.
type onePlugin struct {
	fs.FS
	stem string
}

// ReadDir returns the files whose names begin with the plugin's stem and a period.
func (f onePlugin) ReadDir(name string) (own []fs.DirEntry, err error) {
	all, err := fs.ReadDir(f.FS, name)
	for _, e := range all {
		if strings.HasPrefix(e.Name(), f.stem+".") {
			own = append(own, e)
		}
	}
	return own, err
}

// Stat returns the info of a file in the folder.
func (f onePlugin) Stat(name string) (fs.FileInfo, error) { return fs.Stat(f.FS, name) }
