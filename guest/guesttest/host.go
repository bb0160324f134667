package guesttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/internal/egress"
)

// Host is a host in the test's own process. The zero Host grants no capability,
// gives no facts and never stops a call. It is safe for concurrent use.
type Host struct {
	Facts guest.Facts
	// Capabilities holds the functions behind [guest.Call.Host], by the name of the
	// capability. A nil function means that the capability is not granted. A missing
	// capability of the contract is not granted; any other missing name is unknown to
	// the host. If a function returns an error, the capability has failed; a
	// [*guest.HostError] is returned unchanged.
	Capabilities map[string]func(request json.RawMessage) (response any, err error)
	// StopAfter is the number of progress reports after which the host asks the call
	// to stop: that report and everything later return [guest.ErrCanceled].
	// 0 means never.
	StopAfter int
	Script    []byte // the module's custom section toolhost.script
	// Checkpoint is the checkpoint of a background run: the next call loads what
	// this call saves. Nil means that the call is not a background run and saves
	// nothing.
	Checkpoint *[]byte
	// Messages are sent to the run before the call, in this order. Nil means that the
	// call is not a background run.
	Messages []json.RawMessage
	// Tools holds the other tools that the plugin may call, by name. A function returns
	// either a [guest.ToolAnswer], which is the complete outcome, or any other value,
	// which is the result of a success. An error is a tool error; a [*guest.HostError]
	// is an error of the call itself, such as one with the code "lost". A missing tool
	// is not granted. [Host.ToolOf] makes a function from a tool of another plugin.
	Tools map[string]func(args json.RawMessage) (any, error)
	// Session holds the session's values. Nil means that they are not granted.
	Session *Store
	// KV is the key-value store of the plugin. Nil means that it is not granted.
	KV *Store
	// Answers holds the user's answers to [guest.Call.Ask], by the keys of the questions,
	// see [Accept]. A question without one fails. Nil means that asking is not granted.
	Answers map[string]guest.Answer
	// Folders maps the paths of the plugin's needs to folders of the test. A tool finds
	// them with [guest.Call.Folder]. Other folders are not granted.
	Folders map[string]string
	// HTTP responds to the requests that the needs of the tool and its plugin cover, see [Play] and
	// [Recorded]. During a call it also replaces [http.DefaultTransport], so do not run such tests
	// in parallel. Nil means that HTTP is not granted.
	HTTP http.RoundTripper
	// HTTPRules lists the rules that the operator grants in addition to the needs
	// of the plugin.
	HTTPRules []guest.HTTPNeed
	// Secrets lists the secrets named by the rules of the grant http, and tells
	// whether each has a value. Any other secret is not granted.
	Secrets map[string]bool
}

// Outcome is the result of a call with its output, progress and logs.
type Outcome struct {
	abi.Result
	Stdout, Stderr string // live output, except what is written to os.Stdout and os.Stderr
	Progress       []Progress
	Logs           []Log
	Questions      []guest.Question // questions that the tool asked, if the host has Answers; those asked at once are sorted by key
}

// Progress is one report of progress.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total"` // total amount of work; negative if unknown
	Message string  `json:"message,omitempty"`
	Unit    string  `json:"unit,omitempty"`
	Status  string  `json:"status,omitempty"` // current activity of the tool
}

// Log is one record for the operator.
type Log struct {
	Level   string `json:"level"` // debug, info, warn or error
	Message string `json:"message"`
}

// String returns the result as JSON.
func (o Outcome) String() string {
	data, err := json.Marshal(o.Result)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Call calls a tool with the zero [Host].
func Call(p *guest.Plugin, tool string, args any) Outcome { return Host{}.Call(p, tool, args) }

// Call calls a tool. Its arguments are args, encoded as JSON. Like every host, Call adds the
// defaults of the tool's input schema, and arguments that do not fit the schema are a tool
// error.
func (h Host) Call(p *guest.Plugin, tool string, args any) Outcome {
	data, err := json.Marshal(args)
	if err != nil {
		return broken("the arguments have no JSON: %v", err)
	}
	m, err := p.Manifest()
	if err != nil {
		return broken("%v", err)
	}

	declared, ok := m.Lookup(tool)
	if !ok {
		return broken("plugin %s has no tool %q", p.Name, tool)
	}
	data, problems := fill(declared.InputSchema, data)
	if problems != "" {
		return Outcome{Result: abi.Result{Kind: abi.ToolError, Error: "the arguments do not fit: " + problems}}
	}

	c := &call{Host: h, tool: tool, readonly: declared.Hints.Readonly, args: data, said: Progress{Total: -1}}
	if h.Checkpoint != nil {
		c.restored = *h.Checkpoint
	}

	for _, need := range slices.Concat(m.NeedsOf(declared).All().HTTP, h.HTTPRules) {
		_, host, _ := strings.Cut(need.URL, "://")
		every := strings.HasPrefix(host, "*/") || strings.HasPrefix(host, "*:") // such a rule cannot be private
		c.rules = append(c.rules, egress.Rule{URL: need.URL, Methods: need.Methods, Private: !every})
	}
	defer running.enter(c)()
	return c.outcome(p.Invoke(c))
}

func broken(format string, args ...any) Outcome {
	return Outcome{Result: abi.Result{Kind: abi.Internal, Error: fmt.Sprintf(format, args...)}}
}

// call is one call, with the host functions and their data.
type call struct {
	Host
	tool     string
	readonly bool // whether the tool has the hint readonly
	args     []byte

	rules    []egress.Rule // needs and HTTPRules, as rules
	restored []byte        // the checkpoint before the call

	mu              sync.Mutex
	stopping        bool
	response        []byte
	result, errText []byte
	given           bool // whether the tool wrote a result, if only an empty one
	summary         string
	stdout, stderr  strings.Builder
	said            Progress // last report
	out             Outcome
}

var _ guest.Host = (*call)(nil)

// Read implements [guest.Host].
func (c *call) Read(f abi.Field, into []byte) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()

	var data []byte
	switch f {
	case abi.FieldArgs:
		data = c.args
	case abi.FieldTool:
		data = []byte(c.tool)
	case abi.FieldContext:
		data, _ = json.Marshal(c.Facts) // strings and numbers
	case abi.FieldResponse:
		data = c.response
	case abi.FieldScript:
		data = c.Script
	}

	if data == nil {
		return abi.Absent
	}

	copy(into, data)
	return int32(len(data))
}

// maxBlocks is how many content blocks hosts accept.
const maxBlocks = 256

// Write implements [guest.Host].
func (c *call) Write(s abi.Stream, data []byte) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch s {
	case abi.StreamResult:
		c.result, c.given = append(c.result, data...), true
	case abi.StreamError:
		c.errText = append(c.errText, data...)
	case abi.StreamOutput:
		c.stdout.Write(data)
	case abi.StreamStderr:
		c.stderr.Write(data)
	case abi.StreamContent:
		b, err := abi.DecodeBlock(data)
		if len(c.out.Content) == maxBlocks {
			err = fmt.Errorf("a result has at most %d content blocks", maxBlocks)
		}
		if err != nil {
			c.response, _ = json.Marshal(abi.CallFailure{Code: "invalid", Message: err.Error()}) // two strings
			return abi.RefusedContent
		}
		c.out.Content = append(c.out.Content, b)
	case abi.StreamDebug, abi.StreamInfo, abi.StreamWarn, abi.StreamErrorLog:
		level := []string{"debug", "info", "warn", "error"}[s-abi.StreamDebug]
		c.out.Logs = append(c.out.Logs, Log{level, string(data)})
	default:
		return abi.RefusedStream
	}

	return c.answer()
}

// Progress implements [guest.Host].
func (c *call) Progress(done, total float64, message string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, n := range []float64{done, total} {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return abi.RefusedProgress
		}
	}

	if done < 0 || !utf8.ValidString(message) {
		return abi.RefusedProgress
	}

	c.said.Done, c.said.Total, c.said.Message = done, total, message
	c.sayProgress()
	return c.answer()
}

// sayProgress records a report. The call must be locked.
func (c *call) sayProgress() {
	c.out.Progress = append(c.out.Progress, c.said)
	if len(c.out.Progress) == c.StopAfter {
		c.stopping = true
	}
}

func (c *call) answer() int32 {
	if c.stopping {
		return abi.Canceled
	}
	return abi.Continue
}

// codes holds the return values of the call function, by failure.
var codes = map[string]int32{
	"denied": abi.CallDenied, "unknown": abi.CallUnknown, "invalid": abi.CallInvalid,
	"failed": abi.CallFailed, "limit": abi.CallLimit, "canceled": abi.CallCanceled, "conflict": abi.CallConflict,
	"lost": abi.CallLost,
}

// Call implements [guest.Host].
func (c *call) Call(op string, request []byte) int32 {
	code, response := c.Await(nil, op, request)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.response = response
	return code
}

// Await is like Call, but several goroutines may use it at a time. It cannot end a capability
// of the test early.
func (c *call) Await(_ <-chan struct{}, op string, request []byte) (code int32, response []byte) {
	answer, err := c.use(op, request)
	if err != nil {
		failure := abi.CallFailure{Code: "failed", Message: err.Error()}
		if h, ok := errors.AsType[*guest.HostError](err); ok && codes[h.Code] != 0 {
			failure = abi.CallFailure{Code: h.Code, Message: h.Message}
		}
		response, _ = json.Marshal(failure) // two strings
		return codes[failure.Code], response
	}
	if response, err = json.Marshal(answer); err != nil {
		panic(fmt.Sprintf("the response of capability %s has no JSON: %v", op, err))
	}

	return int32(len(response)), response
}

// use runs a capability of the test, without holding the call's lock, because
// the capability may wait.
func (c *call) use(op string, request []byte) (any, error) {
	c.mu.Lock()
	stopping := c.stopping
	c.mu.Unlock()

	f, known := c.Capabilities[op]

	switch {
	case !known && strings.HasPrefix(op, "checkpoint."):
		return c.checkpoint(op, request)
	case !known && op == "messages.receive":
		return c.receive(request)
	case !known && strings.HasPrefix(op, "session."):
		return c.Session.use(op, request, c.readonly)
	case !known && strings.HasPrefix(op, "kv."):
		return c.KV.use(op, request, c.readonly)
	case !known && op == "report":
		return c.report(request)
	case !known && op == "granted":
		return c.granted(request)
	case !known && op == "http" && !stopping:
		return c.http(request)
	case stopping:
		return nil, &guest.HostError{Code: "canceled", Message: "the call is being stopped"}
	case !known && op == "ask":
		return c.ask(request)
	case !known && op == "tool.call":
		return c.callTool(request)
	case !known && op == "tool.search":
		return c.searchTools(request)
	case !known && op == "secret.exists":
		return c.secretExists(request)
	case !known && op != "sleep": // every host knows it
		return nil, &guest.HostError{Code: "unknown", Message: "this host has no such capability"}
	case f == nil:
		return nil, &guest.HostError{Code: "denied", Message: op + " is not granted to this plugin"}
	}

	return f(request)
}

// secretExists implements secret.exists.
func (c *call) secretExists(request []byte) (any, error) {
	var in struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Name == nil {
		return nil, &guest.HostError{Code: "invalid", Message: `expected {"name": text}`}
	}
	exists, granted := c.Secrets[*in.Name]
	if !granted {
		return nil, &guest.HostError{Code: "denied", Message: "no rule of this plugin's http grant names this secret"}
	}
	return map[string]bool{"exists": exists}, nil
}

// checkpoint implements the checkpoint operations, even while a call is
// being stopped.
func (c *call) checkpoint(op string, request []byte) (any, error) {
	if c.Checkpoint == nil {
		return nil, &guest.HostError{Code: "denied", Message: "only a background run has checkpoints: this call is not run again"}
	}

	var in struct {
		Data []byte `json:"data,omitempty"`
	}
	c.mu.Lock()
	defer c.mu.Unlock()

	switch op {
	case "checkpoint.load":
		in.Data = c.restored
		return in, nil
	case "checkpoint.save":
		err := json.Unmarshal(request, &in)
		*c.Checkpoint = in.Data
		return struct{}{}, err
	}

	return nil, &guest.HostError{Code: "unknown", Message: "this host has no such capability"}
}

// report implements the operation "report".
func (c *call) report(request []byte) (any, error) {
	var in struct{ Status, Unit, Summary *string }
	if err := json.Unmarshal(request, &in); err != nil || in.Status == nil && in.Unit == nil && in.Summary == nil {
		return nil, &guest.HostError{Code: "invalid", Message: "expected a status, a unit or a summary"}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if in.Summary != nil {
		c.summary = *in.Summary
	}
	if in.Unit != nil {
		c.said.Unit = *in.Unit
	}
	if in.Status != nil {
		c.said.Status = *in.Status
		c.sayProgress()
	}
	return struct{}{}, nil
}

// outcome turns the code of a call into its result, as a host does.
func (c *call) outcome(code int32) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()

	o := c.out
	o.Stdout, o.Stderr = c.stdout.String(), c.stderr.String()
	switch code {
	case abi.InvokeOK:
		o.Kind, o.Summary = abi.Success, c.summary
		if !c.given && c.out.Content == nil {
			o.Kind, o.Error = abi.Internal, "the tool wrote neither a result nor content: return a result, or guest.None if the tool has none"
			break
		}
		if len(c.result) == 0 {
			break
		}
		if !json.Valid(c.result) || !utf8.Valid(c.result) {
			o.Kind, o.Error = abi.Internal, "the result is not JSON in UTF-8"
			break
		}

		o.Value = c.result
	case abi.InvokeToolError:
		o.Kind, o.Error, o.Summary = abi.ToolError, strings.TrimSpace(string(c.errText)), c.summary
		if o.Error == "" {
			o.Error = "the tool reported an error without a message"
		}
	case abi.InvokeConnection:
		connection, err := abi.DecodeConnection(c.errText)
		if err != nil {
			o.Kind, o.Error = abi.Internal, err.Error()
			break
		}
		o.Kind, o.Connection, o.Error = abi.ConnectionRequired, connection, "connect "+connection.Provider+" first"
	default:
		o.Kind, o.Error = abi.Internal, string(c.errText)
	}

	return o
}

// receive returns the messages that were not taken yet, without waiting.
func (c *call) receive(request []byte) (any, error) {
	if c.Messages == nil {
		return nil, &guest.HostError{Code: "denied", Message: "only a background run receives messages"}
	}
	var in struct {
		After int64 `json:"after"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.After < 0 {
		return nil, &guest.HostError{Code: "invalid", Message: "not a request of messages.receive"}
	}

	found := []guest.Message{}
	for i, data := range c.Messages {
		if id := int64(i) + 1; id > in.After {
			found = append(found, guest.Message{ID: id, Data: data})
		}
	}
	return map[string]any{"messages": found}, nil
}
