package record

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

// Auditor writes the actions of a Service to its audit log, and counts some of them.
// Without a log it only counts.
type Auditor struct {
	log     *audit.Log
	metrics *telemetry.Telemetry
	granted map[string]string // last logged grants by plugin; calls of Grants do not overlap

	unwatch  context.CancelFunc
	watching chan struct{} // closed once no more events of runs are written
}

// A Source identifies the tool call that a record is about.
type Source struct{ ID, Session, Tool, Plugin string }

// OpenAudit opens the log in a folder; "" means no log.
func OpenAudit(dir string, cfg audit.Config, runs engine.Engine, metrics *telemetry.Telemetry) (a Auditor, err error) {
	a.metrics = metrics
	if dir == "" {
		return a, nil
	}
	a.granted, a.watching = map[string]string{}, make(chan struct{})
	if a.log, err = audit.Open(dir, cfg); err != nil {
		return Auditor{metrics: metrics}, err
	}

	a.log.Append(audit.Event{Kind: audit.Opened})
	var ctx context.Context
	ctx, a.unwatch = context.WithCancel(context.Background())
	events := runs.Watch(ctx, "")
	go func() {
		defer close(a.watching)
		for e := range events {
			a.run(e)
		}
	}()
	return a, nil
}

// Close closes the log, after everything that has happened was written.
func (a *Auditor) Close() error {
	if a.log == nil {
		return nil
	}
	a.unwatch()
	<-a.watching
	return a.log.Close()
}

// about returns a new event of a session.
func about(kind audit.Kind, session string) audit.Event {
	e := audit.Event{Kind: kind, Session: session}
	e.User = wire.UserOf(session)
	return e
}

// Call records the end of a direct call.
func (a *Auditor) Call(note Note, session string, dryRun bool, began time.Time, r abi.Result, err error) {
	if a.log == nil {
		return
	}
	e := about(audit.Call, session)
	e.ID, e.Tool, e.Plugin, e.Digest = cmp.Or(note.Run, note.ID), note.Tool, note.Provider.Plugin, note.Version
	e.Parent = note.Outer
	switch {
	case note.Repeat:
		e.Action = "repeat"
	case note.Corrected > 0:
		e.Action = "corrected" // arguments that did not fit
	}
	e.Outcome, e.Fuel, e.Millis, e.DryRun = string(r.Kind), r.Usage.Fuel, time.Since(began).Milliseconds(), dryRun
	switch {
	case note.Held:
		e.Outcome = audit.Held
	case err != nil:
		e.Code = string(reason.Of(err).Code)
	}
	a.log.Append(e)
}

// Refusals counts the calls to tools that a call makes and that are refused because the tool
// was not granted, or is one of the agent's own. It counts them by the tool that was to be
// called. Calls that a later check refuses are recorded as calls. It is safe for concurrent
// use.
type Refusals struct {
	audit Auditor
	from  Source

	mu    sync.Mutex
	times map[string]int
}

// Refusals returns a new Refusals, without counts, for the call that the source describes.
func (a Auditor) Refusals(from Source) *Refusals { return &Refusals{audit: a, from: from} }

// Add adds a number of refused calls to the tool with this name.
func (r *Refusals) Add(name string, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times == nil {
		r.times = map[string]int{}
	}
	r.times[name] += times
}

// Write writes one line per tool once the call has ended, so that a plugin cannot flood
// the log.
func (r *Refusals) Write() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.audit.log == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.times)) {
		e := about(audit.Call, r.from.Session)
		e.Parent, e.Tool, e.Outcome, e.Code = r.from.ID, name, string(abi.ToolError), string(wire.CodeDenied)
		e.Reason, e.Count = "refused to the tool "+r.from.Tool, int64(r.times[name])
		r.audit.log.Append(e)
	}
}

// Exchange records an HTTP request of a plugin, or one hop of a request that is redirected.
// For a refused request it records the host, too.
func (a *Auditor) Exchange(from Source, x host.Exchange) {
	measureExchange(a.metrics, from.Tool, x)
	if a.log == nil {
		return
	}
	e := about(audit.Egress, from.Session)
	e.ID, e.Tool, e.Plugin = from.ID, from.Tool, from.Plugin
	e.Method, e.Host, e.Status, e.Sent, e.Received, e.Millis = x.Method, x.Host, x.Status, x.Sent, x.Received, x.Duration.Milliseconds()
	switch {
	case x.Refusal != "":
		e.Code = string(wire.CodeDenied)
	case x.Err != "":
		e.Code = "failed"
	}
	if x.Secret != "" {
		e.Names = []string{x.Secret}
	}
	a.log.Append(e)
}

// run records an event of a run if it belongs in the log.
func (a *Auditor) run(event engine.Event) {
	kinds := map[engine.EventKind]audit.Kind{
		engine.EventQueued: audit.Spawned, engine.EventStarted: audit.Spawned,
		engine.EventEnded: audit.Ended, engine.EventMissed: audit.Missed,
	}
	kind, ok := kinds[event.Kind]
	if !ok || event.Run == nil && kind != audit.Missed {
		return
	}
	if kind == audit.Missed {
		a.log.Append(audit.Event{Kind: kind})
		return
	}

	run := event.Run
	if event.Kind == engine.EventQueued && run.Held != "" {
		return // logged as asked; it is logged again once it is approved
	}
	parked := run.Origin == engine.OriginParked
	if kind == audit.Spawned && (parked != (event.Kind == engine.EventStarted) || run.Attempt > 1 || run.StateSize > 0 || event.Kind == engine.EventQueued && run.Attempt > 0) {
		return // logged before
	}
	e := about(kind, run.Session)
	e.ID, e.Parent, e.Tool, e.Plugin, e.Digest, e.By = run.ID, run.Parent, run.Tool, run.Plugin, run.Version, run.By
	switch kind {
	case audit.Spawned:
		e.Action = string(run.Origin)
	case audit.Ended:
		e.Outcome, e.Fuel = string(run.Status), run.Cost.Fuel
		if !run.StartedAt.IsZero() {
			e.Millis = run.FinishedAt.Sub(run.StartedAt).Milliseconds()
		}
		if run.Error != nil {
			e.Code = string(run.Error.Kind)
		}
		if run.Held != "" && run.Cancel != nil {
			e.Reason = run.Cancel.Reason
		}
	}
	a.log.Append(e)
}

// Stop records that somebody asked a run to stop, whether or not it had ended.
func (a *Auditor) Stop(run engine.Run, by, reason string) {
	if a.log == nil {
		return
	}
	e := about(audit.Stop, run.Session)
	e.ID, e.Tool, e.By, e.Reason, e.Outcome = run.ID, run.Tool, by, reason, string(run.Status)
	a.log.Append(e)
}

// Schedule records a change of a schedule.
func (a *Auditor) Schedule(action string, s wire.Schedule, by string) {
	if a.log == nil {
		return
	}
	e := about(audit.Schedule, s.Session)
	e.Action, e.ID, e.Tool, e.By = action, s.ScheduleID, s.Tool, by
	a.log.Append(e)
}

// Admin records that somebody changed or removed something.
func (a *Auditor) Admin(action, session, id string) {
	if a.log == nil {
		return
	}
	e := about(audit.Admin, session)
	e.Action, e.ID = action, id
	a.log.Append(e)
}

// Secret records an action on a secret of a user.
func (a *Auditor) Secret(action, user, name string) {
	if a.log != nil {
		a.log.Append(audit.Event{Kind: audit.Admin, Action: action, User: user, ID: name})
	}
}

// Held describes a call that needs approval.
type Held struct {
	Session, Tool string
	Run           string // run that holds the call; empty if none does
}

// Decided records that somebody was asked to approve a call, or how that ended.
func (a *Auditor) Decided(kind audit.Kind, of Held, by, how string) {
	measureDecision(a.metrics, kind)
	if a.log == nil {
		return
	}
	e := about(kind, of.Session)
	e.Tool, e.ID, e.By = of.Tool, of.Run, by
	if kind == audit.Refused {
		e.Reason = how
	} else {
		e.Action = how
	}
	a.log.Append(e)
}

// Reload records the changes of a reload.
func (a *Auditor) Reload(c plugins.Changes) {
	measureReload(a.metrics, c)
	if a.log == nil {
		return
	}
	var names []string
	for sign, files := range map[string][]string{"+": c.Added, "~": c.Changed, "-": c.Removed} {
		for _, file := range files {
			names = append(names, sign+file)
		}
	}
	slices.Sort(names)
	a.log.Append(audit.Event{Kind: audit.Reload, Names: names, Count: int64(len(c.Problems))})
}

// Grants records the grants in force for each plugin, unless they were logged already. Calls
// must not overlap.
func (a *Auditor) Grants(loaded []*plugins.Plugin) {
	if a.log == nil {
		return
	}
	for _, p := range loaded {
		digest, _ := p.Digest() // an unreadable file is a problem of its own
		names := p.Grant.Names()
		now := digest + " " + strings.Join(names, ", ") + " " + p.Signer.String()
		if said, ok := a.granted[p.Manifest.Name]; ok && said == now {
			continue
		}
		a.granted[p.Manifest.Name] = now
		a.log.Append(audit.Event{Kind: audit.Grant, Plugin: p.Manifest.Name, Digest: digest, Names: names, Signer: p.Signer.String()})
	}
}

// Counts returns how many events were written and lost. Kept is false if there is no log.
func (a *Auditor) Counts() (written, lost int64, kept bool) {
	if a.log == nil {
		return 0, 0, false
	}
	written, lost = a.log.Counts()
	return written, lost, true
}

// Enabled reports whether there is a log.
func (a *Auditor) Enabled() bool { return a.log != nil }
