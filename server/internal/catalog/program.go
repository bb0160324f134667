package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/server/gotool"
)

// A Program holds the program's own tools, which are not sandboxed. It is safe for
// concurrent use.
type Program struct {
	caller   *gotool.Caller
	reserved []string // names that no tool may have

	mu    sync.RWMutex
	tools map[string]*gotool.Loaded
}

// NewProgram loads the program's tools, none of which may have a reserved name. Close the
// Program when done.
func NewProgram(cfg gotool.Config, reserved []string, tools []gotool.Tool) (*Program, error) {
	p := &Program{caller: gotool.NewCaller(cfg), reserved: reserved, tools: map[string]*gotool.Loaded{}}
	for _, t := range tools {
		if err := p.load(t, func(string) error { return nil }); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Names returns the names of the tools, sorted.
func (p *Program) Names() []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Sorted(maps.Keys(p.tools))
}

// Running returns the names of the tools with active calls.
func (p *Program) Running() []string { return p.caller.Running() }

// Close ends the calls to the tools.
func (p *Program) Close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.caller.Close(ctx)
}

func (p *Program) lookup(name string) *gotool.Loaded {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.tools[name]
}

// all returns the tools, sorted by name.
func (p *Program) all() []*gotool.Loaded {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := make([]*gotool.Loaded, 0, len(p.tools))
	for _, name := range slices.Sorted(maps.Keys(p.tools)) {
		all = append(all, p.tools[name])
	}
	return all
}

// load adds a tool under its name, unless that is taken.
func (p *Program) load(t gotool.Tool, take func(name string) error) error {
	loaded, err := p.caller.Load(t)
	if err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case slices.Contains(p.reserved, t.Name):
		err = fmt.Errorf("the name is reserved for the host: choose another one")
	case p.tools[t.Name] != nil:
		err = fmt.Errorf("it is registered already: unregister it first")
	default:
		err = take(t.Name)
	}
	if err != nil {
		return fmt.Errorf("tool %q: %w", t.Name, err)
	}
	p.tools[t.Name] = loaded
	return nil
}

// remove removes a tool, and reports whether it was there.
func (p *Program) remove(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, found := p.tools[name]
	delete(p.tools, name)
	return found
}
