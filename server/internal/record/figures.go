package record

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Limits of [Figures].
const (
	maxCalls    = 500  // maximum number of calls remembered
	maxTools    = 1000 // maximum number of tools with figures
	maxToolName = 128  // maximum length of a tool's name, in bytes
)

// Figures holds the latest direct calls of a Service, totals by tool, and the history of the
// last hour. All of these are limited in size, are kept in memory only, and begin with the
// process. Figures is for operators: see [CallQuery]. It is safe for concurrent use.
type Figures struct {
	stats    func() (background.Stats, host.Stats)
	sampling sync.Mutex

	mu    sync.Mutex
	calls []calledTool // a ring buffer once it is full
	next  int          // index of the next call in calls
	tools map[string]*toolFigures
	all   callHour
	past  history
}

// NewFigures returns empty Figures. The function stats returns the statistics of runs and of
// the host.
func NewFigures(stats func() (background.Stats, host.Stats)) *Figures {
	return &Figures{stats: stats, tools: map[string]*toolFigures{}}
}

// calledTool is a direct call that has ended.
type calledTool struct {
	Note
	session string
	at      time.Time
	took    time.Duration
	outcome abi.Kind
	code    wire.Code
	usage   abi.Usage
	why     *engine.Diagnosis
}

// toolFigures are totals of the calls to a tool.
type toolFigures struct {
	plugin      string
	calls, fuel int64
	cpu         time.Duration
	errors      map[string]int64
	last        time.Time
	took        histogram
	hour        callHour
}

// Add adds a call that has ended.
func (f *Figures) Add(note Note, session string, at time.Time, r abi.Result, err error) {
	c := calledTool{Note: note, session: session, at: at, took: time.Since(at), outcome: r.Kind, usage: r.Usage}
	if len(c.Tool) > maxToolName {
		c.Tool = strings.ToValidUTF8(strings.Clone(c.Tool[:maxToolName]), "")
	}
	if err != nil {
		c.code, c.why = reason.Of(err).Code, shape.DiagnosisOf(err)
	}
	if c.why != nil {
		c.why = background.CleanDiagnosis(*c.why)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.add(&c)
	if !note.Unlisted {
		f.list(c)
	}
	if note.Known {
		f.of(&c).add(&c)
	}
}

// list remembers a call, and drops the oldest one when full.
func (f *Figures) list(c calledTool) {
	if len(f.calls) < maxCalls {
		f.calls = append(f.calls, c)
	} else {
		f.calls[f.next] = c
	}
	f.next = (f.next + 1) % maxCalls
}

// of returns the figures of a call's tool. When full, a new tool replaces the one that
// was not called for the longest time.
func (f *Figures) of(c *calledTool) *toolFigures {
	t := f.tools[c.Tool]
	if t != nil {
		return t
	}
	if len(f.tools) >= maxTools {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(f.tools)), func(a, b string) int { return f.tools[a].last.Compare(f.tools[b].last) })
		delete(f.tools, oldest)
	}
	t = &toolFigures{errors: map[string]int64{}}
	f.tools[c.Tool] = t
	return t
}

func (t *toolFigures) add(c *calledTool) {
	t.plugin, t.last = c.Provider.Plugin, c.at
	t.calls++
	t.fuel += c.usage.Fuel
	t.cpu += c.usage.CPU
	if c.outcome != abi.Success {
		t.errors[cmp.Or(string(c.code), string(c.outcome))]++
	}
	t.took.add(c.took)
	t.hour.add(c)
}

// CallQuery selects calls. Its zero value selects all calls, which only operators may see.
type CallQuery struct {
	Session string // only calls of this session
	Owner   string // only calls of sessions whose name has this prefix, such as those of a user
	Tool    string // only calls to this tool
	Failed  bool   // only unsuccessful calls
	Limit   int    // at most this many; 0 means no limit
}

// Calls returns the calls that the query selects among the latest 500 direct calls, newest
// first. Their diagnoses are for operators only.
func (f *Figures) Calls(q CallQuery) []wire.CallRecord {
	f.mu.Lock()
	defer f.mu.Unlock()

	found := []wire.CallRecord{}
	for i := range f.calls {
		c := &f.calls[(f.next-1-i+2*maxCalls)%maxCalls]
		switch {
		case q.Session != "" && c.session != q.Session, !strings.HasPrefix(c.session, q.Owner),
			q.Tool != "" && c.Tool != q.Tool, q.Failed && c.outcome == abi.Success:
			continue
		}
		if found = append(found, c.record()); len(found) == q.Limit {
			break
		}
	}
	return found
}

func (c *calledTool) record() wire.CallRecord {
	return wire.CallRecord{
		Tool: c.Tool, CallID: c.ID, OuterID: c.Outer, OuterTool: c.By, Kind: c.Provider.Kind, Plugin: c.Provider.Plugin, PluginVersion: c.Provider.PluginVersion, Session: c.session,
		At: c.at, ElapsedSeconds: shape.Micros(c.took), Outcome: c.outcome, Code: c.code, TaskID: c.Run,
		Cost: shape.Cost(shape.CostOf(c.usage)), Diagnosis: c.why,
	}
}

// Tools returns the totals of the direct calls for each tool, most used first.
func (f *Figures) Tools() []wire.ToolFigures {
	f.mu.Lock()
	defer f.mu.Unlock()

	all := []wire.ToolFigures{}
	for name, t := range f.tools {
		all = append(all, wire.ToolFigures{
			Tool: name, Plugin: t.plugin, Calls: t.calls, Errors: maps.Clone(t.errors),
			P50Seconds: shape.Micros(t.took.quantile(0.5)), P95Seconds: shape.Micros(t.took.quantile(0.95)), MaxSeconds: shape.Micros(t.took.max),
			Fuel: t.fuel, CPUSeconds: shape.Micros(t.cpu), LastAt: t.last,
		})
	}
	slices.SortFunc(all, func(a, b wire.ToolFigures) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Tool, b.Tool))
	})
	return all
}

// histogram counts durations in buckets, four for each power of two microseconds.
type histogram struct {
	buckets [4 * 40]int64
	count   int64
	max     time.Duration
	first   [8]time.Duration // the first durations, so that quantiles are exact while there are few
}

func (h *histogram) add(d time.Duration) {
	if h.count < int64(len(h.first)) {
		h.first[h.count] = d
	}
	h.count++
	h.max = max(h.max, d)
	h.buckets[min(bucketOf(uint64(max(0, d.Microseconds()))), len(h.buckets)-1)]++
}

// bucketOf returns the bucket of n: its power of two, and the two bits after the first one.
func bucketOf(n uint64) int {
	if n < 4 {
		return int(n)
	}
	power := bits.Len64(n) - 1
	return 4*(power-1) + int(n>>(power-2)&3)
}

// middle returns the duration in the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket) * time.Microsecond
	}
	power := bucket/4 + 1
	low := uint64(4+bucket%4) << (power - 2)
	return time.Duration(2*low+1<<(power-2)) * time.Microsecond / 2
}

// quantile returns a duration that this share of the durations does not exceed. It is exact
// for a few durations, and for the longest.
func (h *histogram) quantile(part float64) time.Duration {
	rank, seen := int64(math.Ceil(part*float64(h.count))), int64(0)
	if h.count <= int64(len(h.first)) && rank > 0 {
		return slices.Sorted(slices.Values(h.first[:h.count]))[rank-1]
	}
	if rank == h.count {
		return h.max
	}
	for i, n := range h.buckets {
		if seen += n; seen >= rank && n > 0 {
			return min(middle(i), h.max)
		}
	}
	return h.max
}
