package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

const alice = "alice"

// settings are settings for tests.
type settings struct{}

func (settings) Rules() catalog.Rules                { return catalog.NewRules(catalog.Terms{}) }
func (settings) Listings() catalog.Listings          { return nil }
func (settings) Approval(*catalog.Tool) abi.Approval { return abi.ApprovalAuto }

// silent is an audit log for tests.
type silent struct{}

func (silent) Decided(audit.Kind, record.Held, string, string) {}
func (silent) Admin(string, string, string)                    {}

// bench has an Executor and a Follower of tools of a program, on an engine in memory. Calls
// of runs are made by the function call.
type bench struct {
	*Executor
	t    *testing.T
	runs *background.Manager

	log    bytes.Buffer
	policy approval.Policy
	call   func(ctx context.Context, x *Execution) (abi.Result, error)
	parked []wire.Run
}

// open returns a bench with tools that the names of hints stand for. It is closed when the
// test ends.
func open(t *testing.T, tools map[string]abi.Hints) *bench {
	t.Helper()
	b := &bench{t: t}
	e := memory.New()
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	instruments, err := telemetry.New(telemetry.Config{})
	require.NoError(t, err)
	tree := newCatalog(t, tools)

	checker := &approval.Checker{
		Engine: e, Process: "host", Lookup: func(tool string) (*catalog.Tool, error) { return tree.Lookup(tool) },
		Rules: func(*catalog.Tool) approval.Rules { return approval.Rules{Policy: b.policy} }, Audit: silent{},
	}
	b.Executor = &Executor{
		Catalog: tree, Settings: func() catalog.Settings { return settings{} }, Checker: checker, Questions: &question.Registry{Log: log},
		Audit: silent{}, Telemetry: instruments, Log: log, Opened: make(chan struct{}),
	}
	b.runs, err = background.New(context.WithoutCancel(t.Context()), background.Config{Engine: e, Executor: b.Execute, Readmit: b.Readmit, Version: b.Version, Hold: b.Hold})
	require.NoError(t, err)
	b.Questions.Mailbox = func(session, run string) question.Mailbox { return b.runs.Mailbox(session, run) }

	approvals := approval.New(approval.Config{
		Checker: checker, Runs: b.runs, Policy: func() approval.Policy { return b.policy },
		Lacks:     func(context.Context, string, *catalog.Tool) string { return "" },
		Processes: func(context.Context) (map[string]bool, error) { return map[string]bool{"host": true}, nil },
		Serving:   t.Context(), Log: log,
	})
	b.Follower = &Follower{Runs: b.runs, Records: e, Approvals: approvals, Questions: b.Questions, Offer: func() {}, Log: log}
	b.Call = func(ctx context.Context, x *Execution) (abi.Result, error) { return b.call(ctx, x) }
	close(b.Opened)
	t.Cleanup(func() { require.NoError(t, b.runs.Close(context.Background())) })
	return b
}

// newCatalog returns a catalog of tools of a program.
func newCatalog(t *testing.T, tools map[string]abi.Hints) *catalog.Catalog {
	var all []gotool.Tool
	for name, hints := range tools {
		all = append(all, gotool.Tool{Name: name, Description: "For tests.", Hints: hints, Handler: gotool.Handle(
			func(context.Context, *gotool.Call, struct{}) (gotool.None, error) { return gotool.None{}, nil })})
	}
	program, err := catalog.NewProgram(gotool.Config{}, nil, all)
	require.NoError(t, err)
	registry, err := plugins.Open(t.Context(), nil, plugins.Config{Taken: program.Names(), Attached: settings{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Close(context.Background())) })
	return catalog.New(registry, program)
}

// request returns the request of a run of a tool.
func (b *bench) request(tool string) background.SpawnRequest {
	return background.SpawnRequest{Tool: tool, Version: b.Version(tool), Args: json.RawMessage(`{}`), Parked: true}
}

// spawn starts a run.
func (b *bench) spawn(tool string) engine.Run {
	b.t.Helper()
	r, err := b.runs.Spawn(b.t.Context(), alice, b.request(tool))
	require.NoError(b.t, err)
	return r.Run
}

// waiter returns a waiter of alice.
func (b *bench) waiter() Waiter {
	return Waiter{
		Session: alice, Patience: time.Minute, Note: &record.Note{}, Ends: "wait for it",
		OnPark: func(r wire.Run) { b.parked = append(b.parked, r) },
	}
}

// success is the result of a call that has succeeded.
func success(value string) abi.Result {
	return abi.Result{Kind: abi.Success, Value: json.RawMessage(value), Usage: abi.Usage{Fuel: 7}}
}

// attached is the caller's end of a call.
type attached struct {
	parked chan struct{}
	err    error // of Park
}

func (a *attached) Into(call host.Call) host.Call { return call }
func (a *attached) Parked() <-chan struct{}       { return a.parked }
func (a *attached) Park(context.Context) error    { return a.err }
