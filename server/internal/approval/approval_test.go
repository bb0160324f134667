package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/wire"
)

const alice, bob = "alice", "bob"

// code is the code of a tool, by its version. An empty version is not known.
type code struct {
	catalog.Backend
	version string
}

func (c code) Version() (string, error) {
	if c.version == "" {
		return "", plugins.ErrReplaced
	}
	return c.version, nil
}

// PublicArgs implements [catalog.Backend]: the argument key is secret.
func (c code) PublicArgs(args json.RawMessage) (json.RawMessage, bool) {
	var all map[string]any
	if json.Unmarshal(args, &all) != nil || all["key"] == nil {
		return args, false
	}
	delete(all, "key")
	public, _ := json.Marshal(all)
	return public, true
}

// drop returns a destructive tool with that code and those grants.
func drop(version string, grant plugins.Grant) *catalog.Tool {
	plugin := &plugins.Plugin{Manifest: &abi.Manifest{Name: "drop", Version: "1.0.0"}, Grant: grant}
	return &catalog.Tool{Tool: &abi.Tool{Name: "drop"}, Name: "drop", Plugin: plugin, Backend: code{version: version}}
}

// clock is what drop may use.
var clock = plugins.Grant{Clock: true}

// bench is a Manager over one tool, and all that it uses.
type bench struct {
	*Manager
	t      *testing.T
	tool   *catalog.Tool // in force; nil is gone
	rules  Rules
	runs   *background.Manager
	live   map[string]bool // processes
	lacks  string
	log    bytes.Buffer
	closes context.CancelFunc

	mu      sync.Mutex
	audited []string
	made    []string // runs that were executed
}

// open returns a bench that holds calls of drop. It is closed when the test ends.
func open(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, tool: drop("v1", clock), rules: Rules{Policy: Policy{Ask: true}}, live: map[string]bool{"host": true}}
	e := memory.New()
	var err error
	b.runs, err = background.New(t.Context(), background.Config{Engine: e, Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (background.Outcome, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.made = append(b.made, run.ID)
		return background.Outcome{}, nil
	}})
	require.NoError(t, err)

	serving, closes := context.WithCancel(t.Context())
	b.closes = closes
	b.Manager = New(Config{
		Checker: &Checker{Engine: e, Process: "host", Lookup: b.lookup, Rules: func(*catalog.Tool) Rules { return b.rules }, Audit: b},
		Runs:    b.runs, Policy: func() Policy { return b.rules.Policy },
		Lacks:     func(context.Context, string, *catalog.Tool) string { return b.lacks },
		Processes: func(context.Context) (map[string]bool, error) { return b.live, nil },
		Serving:   serving, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	t.Cleanup(func() {
		closes()
		require.NoError(t, b.runs.Close(context.Background()))
	})
	return b
}

func (b *bench) lookup(name string) (*catalog.Tool, error) {
	if b.tool == nil || name != b.tool.Name {
		return nil, plugins.ErrNoTool
	}
	return b.tool, nil
}

// Decided implements [Audit].
func (b *bench) Decided(kind audit.Kind, of record.Held, by, how string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := "call"
	if of.Run != "" {
		held = "run"
	}
	b.audited = append(b.audited, fmt.Sprintf("%s %s of %s by %q: %q", kind, held, of.Session, by, how))
}

// Admin implements [Audit].
func (b *bench) Admin(action, session, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.audited = append(b.audited, action+" "+session+" "+id)
}

// hold holds a call of drop, and returns its run.
func (b *bench) hold(session, args, caller string) engine.Run {
	b.t.Helper()
	run, err := b.tryHold(session, args, caller)
	require.NoError(b.t, err)
	return run
}

func (b *bench) tryHold(session, args, caller string) (engine.Run, error) {
	version, _ := b.tool.Version()
	req := background.SpawnRequest{Tool: "drop", Version: version, Args: json.RawMessage(args), By: caller, Parked: true, Held: HeldFor}
	public, secret := b.tool.PublicArgs(req.Args)
	if secret {
		req.Stored = public
	}
	return b.Hold(b.t.Context(), session, "drop", secret, func(bound Binding) (_ background.SpawnResult, err error) {
		req.Terms, err = json.Marshal(bound)
		require.NoError(b.t, err)
		return b.runs.Spawn(b.t.Context(), session, req)
	})
}

// decide decides on a run for an operator.
func (b *bench) decideOn(run engine.Run, in wire.Decide) error {
	_, err := b.Decide(b.t.Context(), run.ID, "operator", in)
	return err
}

// verdict returns the verdict on a call of drop.
func (b *bench) verdict(session, args, caller string) Verdict {
	v, _ := b.Judge(b.t.Context(), b.tool, Call{Session: session, Tool: "drop", Args: json.RawMessage(args), Caller: caller})
	return v
}

// state returns the state of a run: "held", "gone", or its status once it was decided on.
func (b *bench) state(run engine.Run) string {
	b.t.Helper()
	now, err := b.Engine.Get(b.t.Context(), run.ID)
	switch {
	case err != nil:
		require.ErrorIs(b.t, err, engine.ErrNotFound)
		return "gone"
	case now.Undecided():
		return "held"
	}
	checked, err := b.runs.Check(b.t.Context(), run.Session, background.CheckRequest{IDs: []string{run.ID}, Wait: background.MaxWait})
	require.NoError(b.t, err)
	return string(checked.Reports[0].Status)
}
