package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// program holds the tools of the program.
type program struct {
	caller *gotool.Caller

	mu    sync.RWMutex
	tools map[string]*gotool.Loaded
}

func (p *program) lookup(name string) *gotool.Loaded {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.tools[name]
}

// all returns the tools, sorted by name.
func (p *program) all() []*gotool.Loaded {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := make([]*gotool.Loaded, 0, len(p.tools))
	for _, name := range slices.Sorted(maps.Keys(p.tools)) {
		all = append(all, p.tools[name])
	}
	return all
}

// openProgram loads Config.Tools.
func (s *toolset) openProgram(cfg Config) error {
	s.program.caller = gotool.NewCaller(gotool.Config{Calls: cfg.Host.TotalCalls, Shared: cfg.Host.Shared, Logger: cfg.Logger})
	s.program.tools = map[string]*gotool.Loaded{}
	for _, t := range cfg.Tools {
		if err := s.load(t, func(string) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// load adds a tool under its name, unless that is taken.
func (s *toolset) load(t gotool.Tool, take func(name string) error) error {
	loaded, err := s.program.caller.Load(t)
	if err != nil {
		return err
	}

	s.program.mu.Lock()
	defer s.program.mu.Unlock()
	switch {
	case slices.Contains(agentNames, t.Name):
		err = fmt.Errorf("the name is reserved for the host: choose another one")
	case s.program.tools[t.Name] != nil:
		err = fmt.Errorf("it is registered already: unregister it first")
	default:
		err = take(t.Name)
	}
	if err != nil {
		return fmt.Errorf("tool %q: %w", t.Name, err)
	}
	s.program.tools[t.Name] = loaded
	return nil
}

// Register adds a tool of the program, see package gotool. The error says what is wrong
// with it, or which tool has its name. Plugins that claim the name later are problems.
// Subscribed clients are notified.
//
// [Open] decides on the runs of an earlier process, so a tool whose runs are to continue
// must be in Config.Tools.
func (s *Service) Register(t gotool.Tool) error {
	if s.closed.Load() {
		return reason.ErrShutdown
	}
	if err := s.load(t, s.registry.Take); err != nil {
		return err
	}
	s.reoffer()
	s.changed.Send()
	return nil
}

// Unregister removes a tool of the program. Its active calls and runs continue; queued
// runs and schedules fail when they are due. The error matches [plugins.ErrNoTool] if
// the program has no such tool.
func (s *Service) Unregister(name string) error {
	s.program.mu.Lock()
	_, found := s.program.tools[name]
	delete(s.program.tools, name)
	s.program.mu.Unlock()
	if !found {
		return fmt.Errorf("%w of the program: %.64q", plugins.ErrNoTool, name)
	}

	s.registry.Free(name)
	s.reoffer()
	s.changed.Send()
	return nil
}

// ProgramTools returns the tools of the program, sorted by name, as operators see them.
// They are not sandboxed.
func (s *Service) ProgramTools() []wire.PluginTool {
	var all []wire.PluginTool
	for _, t := range s.program.all() {
		all = append(all, s.newPluginTool(ofProgram(t, s.now())))
	}
	return all
}

// closeProgram ends the calls of the program's tools.
func (s *toolset) closeProgram(ctx context.Context) error {
	if s.program.caller == nil {
		return nil
	}
	return s.program.caller.Close(ctx)
}
