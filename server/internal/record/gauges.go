package record

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

// MeasureEnd returns a function that records the end of a run of this host.
func MeasureEnd(t *telemetry.Telemetry) func(engine.Run) {
	return func(run engine.Run) {
		kind, took := "", time.Duration(0)
		if run.Error != nil {
			kind = string(run.Error.Kind)
		}
		if !run.StartedAt.IsZero() {
			took = run.FinishedAt.Sub(run.StartedAt)
		}
		t.RunEnded(run.Tool, string(run.Status), kind, took)
	}
}

// ObserveCalls reports the calls of plugins.
func ObserveCalls(h host.Stats, o telemetry.Observer) {
	outcomes := h.Outcomes
	set := func(m *telemetry.Metric, key attribute.Key, values map[string]float64) {
		for value, n := range values {
			o.Set(m, n, key.String(value))
		}
	}

	set(telemetry.PluginCalls, telemetry.Outcome, map[string]float64{
		"success": float64(outcomes.Success), "tool_error": float64(outcomes.ToolError), "connection_required": float64(outcomes.ConnectionRequired),
		"canceled": float64(outcomes.Canceled), "fuel": float64(outcomes.Fuel), "time": float64(outcomes.Time), "memory": float64(outcomes.Memory),
		"host_memory": float64(outcomes.HostMemory), "output": float64(outcomes.Output), "internal": float64(outcomes.Internal),
	})
	set(telemetry.PluginStarts, telemetry.Start, map[string]float64{"warm": float64(h.Warm), "restored": float64(h.Restored), "started": float64(h.Started)})
	set(telemetry.CallsActive, telemetry.State, map[string]float64{"running": float64(h.Running), "waiting": float64(h.Waiting)})
	o.Set(telemetry.CallsWaited, float64(h.Waited))
	o.Set(telemetry.CallsWaitTime, h.WaitTime.Seconds())
	set(telemetry.ProcessorCalls, telemetry.State, map[string]float64{"computing": float64(h.Processors.Computing), "waiting": float64(h.Processors.Waiting)})
	o.Set(telemetry.ProcessorWait, h.Processors.WaitTime.Seconds())

	set(telemetry.Instances, telemetry.State, map[string]float64{"busy": float64(h.Instances - h.Idle), "idle": float64(h.Idle)})
	set(telemetry.Memory, telemetry.Use, map[string]float64{
		"instances": float64(h.MemoryOf.Instances), "images": float64(h.MemoryOf.Images), "stacks": float64(h.MemoryOf.Stacks), "buffers": float64(h.MemoryOf.Buffers),
	})
	o.Set(telemetry.MemoryLimit, float64(h.MemoryLimit))
	set(telemetry.Compilations, telemetry.Source, map[string]float64{"cache": float64(h.Compiled.Cached), "compiler": float64(h.Compiled.Anew)})
	o.Set(telemetry.CompileTime, h.Compiled.Time.Seconds())
}

// ObserveRuns reports the background runs of this host.
func ObserveRuns(r background.Stats, o telemetry.Observer) {
	for state, n := range map[string]int{"running": r.Active - r.Parked, "parked": r.Parked, "queued": r.Queued, "waiting": r.Waiting, "unstored": r.Unstored} {
		o.Set(telemetry.Runs, float64(n), telemetry.State.String(state))
	}

	o.Set(telemetry.RunSlots, float64(r.PerHost))
	o.Set(telemetry.RunsSpawned, float64(r.Spawned))
	o.Set(telemetry.RunsRefused, float64(r.Refused))
	o.Set(telemetry.RunsRerun, float64(r.Rerun))
	o.Set(telemetry.Records, float64(r.RecordBytes))
	o.Set(telemetry.RecordsLimit, float64(r.RecordQuota))
}

// ObserveHosts reports the hosts that share an engine.
func ObserveHosts(hosts wire.Hosts, o telemetry.Observer) {
	running, slots, states := 0, 0, map[wire.HostState]int{wire.HostLive: 0, wire.HostLost: 0}
	for _, h := range hosts.Hosts {
		states[h.State]++
		if h.State == wire.HostLive {
			running, slots = running+h.Running, slots+h.PerHost
		}
	}
	for state, n := range states {
		o.Set(telemetry.Hosts, float64(n), telemetry.State.String(string(state)))
	}
	o.Set(telemetry.HostsRunning, float64(running))
	o.Set(telemetry.HostsSlots, float64(slots))
	o.Set(telemetry.HostsDiffer, float64(len(hosts.Differences)))
}

// ObserveKV reports the size of key-value stores for each plugin, and one total for plugins
// that are not loaded.
func ObserveKV(stores wire.KVStores, plugins []*plugins.Plugin, o telemetry.Observer) {
	loaded := map[string]bool{}
	for _, p := range plugins {
		loaded[p.Manifest.Name] = true
	}

	type size struct{ keys, bytes int64 }
	sizes := map[attribute.KeyValue]size{}
	for _, one := range stores.Stores {
		plugin := o.Plugin(one.Plugin, loaded[one.Plugin])
		sum := sizes[plugin]
		sizes[plugin] = size{sum.keys + int64(one.Keys), sum.bytes + one.Bytes}
	}
	for plugin, sum := range sizes {
		o.Set(telemetry.KVKeys, float64(sum.keys), plugin)
		o.Set(telemetry.KVUsage, float64(sum.bytes), plugin)
	}
}
