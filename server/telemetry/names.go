package telemetry

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// Versions of the semantic conventions that the names below follow. The conventions for
// GenAI and MCP have their own repository and are still in development.
const (
	GenAIConventions = "v0.1.0"  // github.com/open-telemetry/semantic-conventions-genai
	Conventions      = "v1.45.0" // github.com/open-telemetry/semantic-conventions, which the GenAI conventions build on
)

// Attributes of the conventions.
const (
	ToolName        = attribute.Key("gen_ai.tool.name")
	ToolType        = attribute.Key("gen_ai.tool.type")
	OperationName   = attribute.Key("gen_ai.operation.name")
	ErrorType       = attribute.Key("error.type")
	MCPMethod       = attribute.Key("mcp.method.name")
	MCPVersion      = attribute.Key("mcp.protocol.version")
	RPCStatus       = attribute.Key("rpc.response.status_code")
	Transport       = attribute.Key("network.transport")
	NetworkProtocol = attribute.Key("network.protocol.name")
	IODirection     = attribute.Key("network.io.direction")
)

// Attributes of Toolhost.
const (
	Caller      = attribute.Key("toolhost.caller")       // who made the call: client or tool
	Outcome     = attribute.Key("toolhost.outcome")      // how a call ended
	Status      = attribute.Key("toolhost.run.status")   // how a run ended
	State       = attribute.Key("toolhost.state")        // state of calls, runs, instances and hosts
	Start       = attribute.Key("toolhost.start")        // how an instance started
	Use         = attribute.Key("toolhost.memory.use")   // what the memory is used for
	Source      = attribute.Key("toolhost.source")       // source of compiled code
	Result      = attribute.Key("toolhost.result")       // result of a request or a reload
	Decision    = attribute.Key("toolhost.decision")     // decision on a call that needs approval
	Plugin      = attribute.Key("toolhost.plugin")       // name of a plugin
	CallID      = attribute.Key("toolhost.call.id")      // on spans only
	RunID       = attribute.Key("toolhost.run.id")       // on spans only
	Attempt     = attribute.Key("toolhost.run.attempt")  // on spans only
	Fuel        = attribute.Key("toolhost.fuel")         // on spans only
	CPUTime     = attribute.Key("toolhost.cpu.time")     // on spans only, in seconds
	WaitTime    = attribute.Key("toolhost.wait.time")    // on spans only, in seconds
	MemoryPeak  = attribute.Key("toolhost.memory.peak")  // on spans only, in bytes
	OutputBytes = attribute.Key("toolhost.output.bytes") // on spans only
)

// Values of attributes.
const (
	ExecuteTool = "execute_tool" // value of OperationName
	ToolsCall   = "tools/call"   // value of MCPMethod
	// Unknown replaces the name of a tool that does not exist. Other replaces names and
	// methods that have no series of their own: clients and plugins must not be able to
	// create series without bound.
	Unknown = "_unknown"
	Other   = "_other"
)

// The types of metrics.
const (
	Histogram = "histogram"
	Counter   = "counter"
	Gauge     = "gauge"
)

// A Metric describes a metric of Toolhost. [All] returns all of them.
type Metric struct {
	Name   string // name in OpenTelemetry
	Type   string
	Unit   string // unit in UCUM; counted things are in braces
	Doc    string // description in Markdown
	Labels []attribute.Key
}

// Prometheus returns the metric's name in the Prometheus text format.
func (m *Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if suffix := map[string]string{"s": "_seconds", "By": "_bytes"}[m.Unit]; suffix != "" {
		name += suffix
	}
	if m.Type == Counter {
		name += "_total"
	}
	return name
}

// All returns all metrics, in the order of the documentation.
func All() []*Metric { return all }

var all []*Metric

func define(name, kind, unit, doc string, labels ...attribute.Key) *Metric {
	m := &Metric{name, kind, unit, doc, labels}
	all = append(all, m)
	return m
}

// Metrics of what callers see: tool calls, requests, cost and connections.
var (
	CallDuration = define("gen_ai.execute_tool.duration", Histogram, "s", "Tool calls as their callers see them, including waits. `error.type` is missing if the call succeeded or became a run. Otherwise it is the [code](http.md#problems) of the error, `tool_error`, `connection_required` or `canceled`. The codes include the limits `fuel`, `time`, `memory`, `host_memory` and `output`.", ToolName, ErrorType, Caller)
	MCPDuration  = define("mcp.server.operation.duration", Histogram, "s", "Requests and notifications from MCP clients. `error.type` is the code of a JSON-RPC error, or `tool_error`. Tool calls also count in `gen_ai.execute_tool.duration`.", MCPMethod, ToolName, ErrorType)
	ToolFuel     = define("toolhost.tool.fuel", Counter, "{unit}", "Fuel used by calls and runs, including the tools that they call.", ToolName)
	ToolCPU      = define("toolhost.tool.cpu.time", Counter, "s", "Processor time used by calls and runs, including the tools that they call.", ToolName)
	Connections  = define("toolhost.connections", Gauge, "{client}", "Clients that are connected or sent a request in the last 30 minutes, up to 1,024.")
)

// Metrics of what plugins do.
var (
	PluginCalls    = define("toolhost.plugin.calls", Counter, "{call}", "Finished plugin calls, including those of runs and other tools, by outcome: `success`, `tool_error`, `connection_required`, `canceled`, the limits `fuel`, `time`, `memory`, `host_memory` and `output`, or `internal`.", Outcome)
	PluginStarts   = define("toolhost.plugin.starts", Counter, "{call}", "Instances that served plugin calls: `warm`, `restored` from a snapshot, or `started` for the call.", Start)
	CallsActive    = define("toolhost.calls.active", Gauge, "{call}", "Plugin calls that are `running` or `waiting` for a slot.", State)
	CallsWaited    = define("toolhost.calls.waited", Counter, "{call}", "Calls that had to wait for a slot.")
	CallsWaitTime  = define("toolhost.calls.wait.time", Counter, "s", "Total time that calls waited for a slot.")
	ProcessorCalls = define("toolhost.processor.calls", Gauge, "{call}", "Calls that are `computing` or `waiting` for a processor.", State)
	ProcessorWait  = define("toolhost.processor.wait.time", Counter, "s", "Total time that calls waited for a processor.")
	Instances      = define("toolhost.instances", Gauge, "{instance}", "Plugin instances: `busy`, or `idle` and warm.", State)
	Memory         = define("toolhost.memory.usage", Gauge, "By", "Memory that counts against `host.memory`: `instances`, `images`, `stacks`, `buffers`.", Use)
	MemoryLimit    = define("toolhost.memory.limit", Gauge, "By", "The limit on that memory, `host.memory`.")
	Compilations   = define("toolhost.compilations", Counter, "{module}", "Modules whose code came from the `cache` or the `compiler`.", Source)
	CompileTime    = define("toolhost.compilation.time", Counter, "s", "Total time spent loading modules from the cache or compiling them.")
	EgressDuration = define("toolhost.egress.duration", Histogram, "s", "Plugins' HTTP requests, counting each redirect: `answered`, `failed`, or `refused` by the grants.", ToolName, Result)
	EgressIO       = define("toolhost.egress.io", Counter, "By", "Body bytes of plugins' HTTP requests: `transmit` or `receive`.", ToolName, IODirection)
	KVKeys         = define("toolhost.kv.keys", Gauge, "{key}", "Values in plugins' key-value stores.", Plugin)
	KVUsage        = define("toolhost.kv.usage", Gauge, "By", "Bytes of the keys and values in plugins' key-value stores.", Plugin)
)

// Metrics of background runs.
var (
	Runs         = define("toolhost.runs", Gauge, "{run}", "Runs that are `running` and calls that are `parked` on this host, runs that are `queued` or `waiting` on all hosts, and runs that ended on this host but are still `unstored`.", State)
	RunSlots     = define("toolhost.run.slots", Gauge, "{run}", "Slots for runs on this host, `background.per_host`.")
	RunDuration  = define("toolhost.run.duration", Histogram, "s", "Runs that ended on this host, from start to end. `toolhost.run.status` is `succeeded`, `failed` or `canceled`. For failed runs, `error.type` is the kind of error.", ToolName, Status, ErrorType)
	RunQueue     = define("toolhost.run.queue.duration", Histogram, "s", "Time from the spawn of a run to its first start on this host, including waits for approval.")
	RunsSpawned  = define("toolhost.runs.spawned", Counter, "{run}", "Runs that were stored.")
	RunsRefused  = define("toolhost.runs.refused", Counter, "{run}", "Spawns, parked calls and schedules that were refused because of a limit.")
	RunsRerun    = define("toolhost.runs.rerun", Counter, "{run}", "Runs that were restarted after an interruption.")
	Records      = define("toolhost.records.usage", Gauge, "By", "Bytes used by the records of runs and schedules.")
	RecordsLimit = define("toolhost.records.limit", Gauge, "By", "The quota for these records, `background.record_quota`.")
)

// Metrics of what operators watch: approvals, plugins, reloads, the audit log and the store.
var (
	Approvals        = define("toolhost.approvals", Counter, "{decision}", "Calls that a person was `asked` to approve, and calls that were `approved` or `refused`, by a person or a rule.", Decision)
	ApprovalsWaiting = define("toolhost.approvals.waiting", Gauge, "{call}", "Calls that wait for approval, on all hosts.")
	Plugins          = define("toolhost.plugins", Gauge, "{plugin}", "Loaded plugins.")
	Tools            = define("toolhost.tools", Gauge, "{tool}", "Tools of the loaded plugins.")
	Problems         = define("toolhost.problems", Gauge, "{problem}", "Problems, such as plugins that did not load or were granted less than they need.")
	Reloads          = define("toolhost.reloads", Counter, "{reload}", "Reloads that changed something: `ok`, or with `problems`.", Result)
	AuditEvents      = define("toolhost.audit.events", Counter, "{event}", "Lines written to the audit log.")
	AuditLost        = define("toolhost.audit.lost", Counter, "{event}", "Events that could not be written to the audit log.")
	StoreUp          = define("toolhost.store.up", Gauge, "{store}", "1 if the store of runs responds, else 0.")
	StoreProblems    = define("toolhost.store.problems", Counter, "{problem}", "Damaged records, logs and files found in the data folder.")
)

// Metrics of the hosts that share an engine. Each host reports on all of them.
var (
	Hosts        = define("toolhost.cluster.hosts", Gauge, "{host}", "Hosts: `live`, or `lost` until their runs are taken over.", State)
	HostsRunning = define("toolhost.cluster.running", Gauge, "{run}", "Runs that are active on live hosts.")
	HostsSlots   = define("toolhost.cluster.slots", Gauge, "{run}", "Slots for runs on live hosts.")
	HostsDiffer  = define("toolhost.cluster.plugins.differing", Gauge, "{plugin}", "Plugins that differ between live hosts.")
)

// Bucket boundaries of durations, in seconds: from a warm call to a long run.
var (
	callBounds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	runBounds  = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400, 604800}
)
