package guest

import (
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
)

// Call is one call to a tool and its connection to the host. The tool's goroutines
// may use it concurrently, but not after the tool has returned.
type Call struct {
	host     Host
	tool     string
	canceled atomic.Bool
	facts    func() Facts
	inbox    []Message  // messages received but not returned yet
	received int64      // ID of the last one returned
	calling  sync.Mutex // held from a host call until its response is read
}

// Facts describe a call.
type Facts = abi.Context

func newCall(h Host) *Call {
	c := &Call{host: h}
	c.tool = string(c.read(abi.FieldTool))
	c.facts = sync.OnceValue(func() Facts {
		var f Facts
		_ = json.Unmarshal(c.read(abi.FieldContext), &f) // a host may have no facts
		return f
	})
	return c
}

// Tool returns the name of the tool being called.
func (c *Call) Tool() string { return c.tool }

// Facts returns the facts of the call.
func (c *Call) Facts() Facts { return c.facts() }

// Config returns what the operator set for the plugin under that name, or "".
func (c *Call) Config(name string) string { return c.facts().Config[name] }

// Err returns nil until another method has returned [ErrCanceled], and [ErrCanceled] from then
// on.
func (c *Call) Err() error {
	if c.canceled.Load() {
		return ErrCanceled
	}
	return nil
}

// Output returns an unbuffered writer for the live output of the call. It writes to the same
// stream as [os.Stdout].
func (c *Call) Output() io.Writer { return stream{c, abi.StreamOutput} }

// Stderr returns a writer for the call's second stream of live output, the same stream as
// [os.Stderr].
func (c *Call) Stderr() io.Writer { return stream{c, abi.StreamStderr} }

type stream struct {
	call *Call
	kind abi.Stream
}

func (s stream) Write(p []byte) (int, error) {
	err := s.call.Write(s.kind, p)
	if err != nil && err != ErrCanceled {
		return 0, err
	}
	return len(p), err
}

// Write appends data to a stream of the contract. A tool that writes a large result
// in parts writes JSON to [abi.StreamResult] and returns [None]. If the call is being
// stopped, Write writes the data and returns [ErrCanceled]. Other errors are a
// [*WriteError].
func (c *Call) Write(s abi.Stream, data []byte) error {
	if s != abi.StreamContent {
		return c.code(s, c.host.Write(s, data))
	}

	c.calling.Lock()
	defer c.calling.Unlock()
	code := c.host.Write(s, data)
	if code != abi.RefusedContent {
		return c.code(s, code)
	}
	var why abi.CallFailure
	_ = json.Unmarshal(c.read(abi.FieldResponse), &why) // a host may not give a reason
	return &WriteError{Stream: s, Code: code, Reason: why.Message}
}

// progressStream stands for progress reports in a WriteError.
const progressStream abi.Stream = -1

// Progress reports that done out of total is finished, in any unit; a negative total means that
// it is unknown. The message may be empty. Reports are cheap: send one every few milliseconds
// of work. Progress returns [ErrCanceled] once the call is being stopped, and a [*WriteError]
// for NaN and for a message that is not UTF-8.
func (c *Call) Progress(done, total float64, message string) error {
	return c.code(progressStream, c.host.Progress(done, total, message))
}

func (c *Call) code(s abi.Stream, code int32) error {
	switch {
	case code == abi.Canceled:
		c.canceled.Store(true)
		return ErrCanceled
	case code < 0:
		return &WriteError{Stream: s, Code: code}
	}
	return nil
}

// read returns a field, or nil if it is absent.
func (c *Call) read(f abi.Field) []byte { return readField(c.host, f) }

// readField reads a field: a long one twice, the first time to get its length.
func readField(h Host, f abi.Field) []byte {
	buf := make([]byte, 4<<10)
	n := int(h.Read(f, buf))
	for n > len(buf) {
		buf = make([]byte, n)
		n = int(h.Read(f, buf))
	}
	if n < 0 {
		return nil
	}
	return buf[:n]
}

// Script returns the module's custom section toolhost.script, or nil. It is for
// interpreters.
func (c *Call) Script() []byte { return c.read(abi.FieldScript) }
