// Package abi is the contract between the host and a plugin: the names that cross the boundary,
// the manifest with its strict decoder and published JSON Schema, the result of a call, and, in
// testdata, the test vectors that the host and every guest SDK run.
//
// It imports nothing but the standard library and builds for GOOS=wasip1, so
// that plugins written in Go share it with the host. Everything in it is
// immutable or a plain value, safe for concurrent use.
package abi

// Version is the name of the import module and of the contract. Additions keep the
// name; a breaking change makes it toolhost_v2.
const Version = "toolhost_v1"

// The five functions a plugin may import from [Version].
const (
	ImportRead     = "read"       // (field, ptr, cap i32) -> i32
	ImportWrite    = "write"      // (kind, ptr, len i32) -> i32
	ImportProgress = "progress"   // (done, total f64, msg, len i32) -> i32
	ImportCall     = "call"       // (op, op_len, ptr, len i32) -> i32
	ImportStart    = "call_start" // (op, op_len, ptr, len i32) -> i32; requires the export [ExportResume]
)

// The exports of a reactor. A WASI command exports [ExportStart] instead.
const (
	ExportMemory     = "memory"
	ExportDescribe   = "toolhost_describe" // () -> i32; optional if the manifest is in a section or a sidecar
	ExportInvoke     = "toolhost_invoke"   // () -> i32, one of the Invoke codes
	ExportResume     = "toolhost_resume"   // (id, code i32) -> i32, one of the Invoke codes; optional, called when a started operation has ended
	ExportRestored   = "toolhost_restored" // (); optional, called after a snapshot is restored
	ExportInitialize = "_initialize"       // (); optional, called once before anything else
	ExportStart      = "_start"            // () of a WASI preview 1 command
)

// ImportWASI is the module of WASI preview 1. A plugin may import it in addition to
// [Version].
const ImportWASI = "wasi_snapshot_preview1"

// Custom sections of a module.
const (
	SectionManifest = "toolhost.manifest" // the manifest as JSON
	SectionScript   = "toolhost.script"   // script for interpreter guests, which read it as [FieldScript]
)

// Field is the data that a plugin reads with [ImportRead]. That function copies as much as fits
// and returns the total length, or [Absent].
type Field int32

// The fields.
const (
	FieldArgs     Field = 0 // JSON arguments of this call
	FieldTool     Field = 1 // name of the tool being called
	FieldContext  Field = 2 // a [Context] as JSON
	FieldResponse Field = 3 // response of the last [ImportCall], or of the finished operation
	FieldScript   Field = 4 // the module's [SectionScript]
)

// Absent is what [ImportRead] returns for a missing field.
const Absent int32 = -1

// Stream is the destination of a write with [ImportWrite].
type Stream int32

// The streams. Writes append; the bytes of all streams count against the output limit of
// the call.
const (
	StreamResult   Stream = 0 // JSON result of the call
	StreamError    Stream = 1 // error text for the agent
	StreamManifest Stream = 2 // the manifest, written by [ExportDescribe]
	StreamOutput   Stream = 3 // live output, the same as WASI's fd 1
	StreamStderr   Stream = 4 // live output, the same as WASI's fd 2
	StreamContent  Stream = 5 // content blocks: one per write, as JSON
	StreamDebug    Stream = 8 // log records, as in the streams below: for the operator, never for the model
	StreamInfo     Stream = 9
	StreamWarn     Stream = 10
	StreamErrorLog Stream = 11
)

// The return values of [ImportWrite] and [ImportProgress].
const (
	Continue        int32 = 0
	Canceled        int32 = 1  // the call is being stopped: finish soon; output and result still count
	RefusedOutput   int32 = -1 // the output limit is reached: the host will end the call soon
	RefusedStream   int32 = -2 // unknown stream, or not allowed at this point
	RefusedContent  int32 = -3 // invalid content block
	RefusedProgress int32 = -4 // not a number, or a message that is not UTF-8
)

// The failure codes, which [ImportCall] returns in place of a length, and [ImportStart] in
// place of an id. The response is then a [CallFailure] as JSON.
const (
	CallDenied   int32 = -1 // the operator has not granted the capability
	CallUnknown  int32 = -2 // this host has no such capability
	CallInvalid  int32 = -3 // the request does not fit the capability
	CallFailed   int32 = -4 // the host tried and failed
	CallLimit    int32 = -5 // a limit of the capability is exceeded
	CallCanceled int32 = -6 // the call is being stopped
	CallConflict int32 = -7 // the stored value has a different version from the one that the request expects
	CallLost     int32 = -8 // the operation had begun when its host died, and may have taken effect
)

// MaxPending is the maximum number of unfinished operations of a call, and MaxStart is the
// maximum size of a request that starts an operation, in bytes.
const (
	MaxPending = 64
	MaxStart   = 1 << 20
)

// CallFailure is the response of a host capability that refuses or fails.
type CallFailure struct {
	Code    string `json:"code"` // denied, unknown, invalid, failed, limit, canceled, conflict or lost
	Message string `json:"message"`
}

// The return values of [ExportInvoke] and [ExportResume]. Any other number means that the plugin
// is broken.
const (
	InvokeOK         int32 = 0 // the result is in StreamResult and StreamContent
	InvokeToolError  int32 = 1 // the text for the agent is in StreamError
	InvokePanic      int32 = 2 // the guest panicked; StreamError holds its message
	InvokeConnection int32 = 3 // StreamError holds a [Connection] as JSON
	InvokeWaiting    int32 = 4 // the plugin is waiting for operations that it has started
)

// Context is the content of [FieldContext]: the facts that a plugin gets about a call in
// addition to its arguments. It never contains a secret.
type Context struct {
	CallID    string            `json:"call_id"`
	Session   string            `json:"session,omitempty"`
	Attempt   int               `json:"attempt"`          // number of the attempt, from 1
	TimeoutMS int64             `json:"timeout_ms"`       // time limit of the whole call, in milliseconds
	Fuel      int64             `json:"fuel"`             // fuel budget of the whole call, in units
	Locale    string            `json:"locale,omitempty"` // BCP 47 language tag, such as "de-CH"
	Config    map[string]string `json:"config,omitempty"` // the operator's settings for this plugin
}
