package mcpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxLine bounds one message of the client, in bytes. It leaves room for the
// largest arguments a call may have.
const maxLine = 16 << 20

// The methods a pipe knows: the one that has to be answered first, the one that
// cancels, and the one call that is answered when the session ends.
const (
	methodInitialize = "initialize"
	methodCancelled  = "notifications/cancelled"
	methodListen     = "subscriptions/listen"
)

// pipe stands between the client's streams and the SDK, for what the SDK does not
// do. A line that is no message is answered with an error, as
// JSON-RPC 2.0 section 5.1 has it, where the SDK would end the session. A call
// that the client canceled is not answered, as MCP asks of servers
// (basic/utilities/cancellation). And a client that asks faster than it is
// answered waits: nothing is read while maxCalls calls have no answer.
//
// Arrays of messages, which revisions before 2025-06-18 allow, pass as their
// messages, and their answers come back as one array: the SDK would not answer one
// with a notification, and end the session at one that it does not allow.
type pipe struct {
	in    io.Reader
	grace time.Duration // of drain
	lines *bufio.Reader
	rest  []byte        // of the line being read
	stuck bool          // calls waited for room in vain, and none was answered since
	ended chan struct{} // closed when the input has ended

	writing sync.Mutex // one line at a time
	out     io.Writer

	mu         sync.Mutex
	calls      map[jsonrpc.ID]*openCall // those without an answer yet
	initialize jsonrpc.ID               // the last call of that method
	arrays     bool                     // the revision that was agreed on has them
	answered   chan struct{}            // has room for one: another call was answered

	closing sync.Once
	closed  chan struct{}
}

// openCall is a call that has no answer yet.
type openCall struct {
	answered bool // its answer is being written
	canceled bool
	listens  bool     // is answered when the session ends: nobody waits for it
	taskIDs  []string // that it wants to hear of
	array    *array   // it came in; nil for none
}

// array is the answer to an array of messages.
type array struct {
	open    int // calls without an answer
	answers [][]byte
}

func newPipe(in io.Reader, out io.Writer, grace time.Duration) *pipe {
	return &pipe{
		in: in, grace: grace, lines: bufio.NewReader(in), ended: make(chan struct{}), out: out,
		calls: map[jsonrpc.ID]*openCall{}, answered: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// drainGrace is how long calls that were made before the input ended may still
// be answered: a client that writes all it has to ask and closes its end gets
// its answers, and one that went away keeps the process for no longer.
const drainGrace = time.Second

// Read hands out the client's messages. It is called by one goroutine, and not
// again after an error.
func (p *pipe) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		line, err := p.line()
		if err != nil {
			p.drain()
			close(p.ended)
			return 0, err
		}
		if err := p.accept(line); err != nil {
			close(p.ended)
			return 0, err
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// drain waits for the answers of the calls that were made.
func (p *pipe) drain() {
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	for p.grace > 0 && p.unanswered() > 0 {
		select {
		case <-p.answered:
		case <-grace.C:
			return
		case <-p.closed:
			return
		}
	}
}

func (p *pipe) unanswered() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, call := range p.calls {
		if !call.listens {
			n++
		}
	}
	return n
}

// Close ends a Read that waits, if the input can be closed.
func (p *pipe) Close() error {
	p.closing.Do(func() { close(p.closed) })
	if c, ok := p.in.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// line returns the next line with its line feed, or nil if it is too long. The
// last line may lack the line feed.
func (p *pipe) line() ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := p.lines.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		case tooLong:
			return nil, p.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message has more than %d bytes", maxLine))
		}
		return line, nil
	}
}

// accept lets a line through to the SDK, or answers it.
func (p *pipe) accept(line []byte) error {
	message := bytes.TrimSpace(line)
	if len(message) == 0 {
		return nil
	}
	list, isArray := messages(message)
	switch {
	case len(list) > maxBatch:
		return p.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("the array has more than %d messages", maxBatch))
	case isArray && len(list) == 0:
		return p.refuse(jsonrpc.CodeInvalidRequest, "the array is empty")
	case isArray && !p.takesArrays():
		return p.refuse(jsonrpc.CodeInvalidRequest, "arrays of messages are for revisions before 2025-06-18, once one was agreed on")
	case !isArray:
		list = []json.RawMessage{message}
	}
	received, err := p.read(list)
	var together *array
	if isArray {
		together = &array{}
	}
	switch {
	case err != nil && err.quiet:
		return nil
	case err != nil:
		return p.refuseCall(err.to, err.Error)
	case p.room(received, together):
		for _, one := range list {
			p.rest = append(append(p.rest, one...), '\n')
		}
		return nil
	case len(received) == 1:
		return p.refuseCall(received[0].ID, busy(maxCalls))
	}
	return p.refuseCall(nil, busy(maxCalls))
}

// refusal is why a line is not let through.
type refusal struct {
	*jsonrpc.Error
	to    json.RawMessage // the call it answers, if it can be said which
	quiet bool            // a notification: nobody may be answered
}

// received is a message as we and as the SDK read it.
type received struct {
	envelope
	jsonrpc.Message
}

// read reads the messages of a line.
func (p *pipe) read(list []json.RawMessage) (all []received, refused *refusal) {
	ids := map[jsonrpc.ID]bool{}
	for _, one := range list {
		m, problem := readEnvelope(one)
		if problem == nil && m.ID != nil {
			problem = m.unsupported()
		}
		if problem != nil {
			return nil, &refusal{problem, m.ID, m.notifies()}
		}
		decoded, err := jsonrpc.DecodeMessage(one)
		if err != nil {
			return nil, &refusal{invalidMessage(err.Error()), m.ID, m.notifies()}
		}
		if call, ok := decoded.(*jsonrpc.Request); ok && call.IsCall() {
			if ids[call.ID] || p.open(call.ID) != nil { // with the id, it would seem to be the other one's answer
				return nil, &refusal{Error: invalidMessage("id: another request has it, and no answer yet")}
			}
			ids[call.ID] = true
		}
		all = append(all, received{m, decoded})
	}
	return all, nil
}

// patience is how long a call waits for room. Later ones wait no more, until
// another call was answered: behind them may be what those that are running wait
// for, the answer of a user or a cancellation.
const patience = 10 * time.Second

// room waits until there is room for the calls among messages, and notes them.
func (p *pipe) room(list []received, together *array) bool {
	n, most := 0, maxCalls
	for _, m := range list {
		if req, ok := m.Message.(*jsonrpc.Request); ok && req.IsCall() {
			n++
			if len(list) == 1 && req.Method == methodPing { // it has to tell that the server is there
				most += morePings
			}
		}
	}
	if !p.begun() || n > 0 && p.unanswered()+n > most && !p.waitForRoom(most-n) {
		return false
	}
	for _, m := range list {
		p.note(m, together)
	}
	return true
}

// morePings is how many pings there may be beyond maxCalls.
const morePings = 16

// begun waits for the answer to initialize: the SDK keeps all that comes before
// the client has taken it.
func (p *pipe) begun() bool {
	for {
		p.mu.Lock()
		_, waits := p.calls[p.initialize]
		p.mu.Unlock()
		if !waits {
			return true
		}
		select {
		case <-p.answered:
		case <-p.closed:
			return false
		}
	}
}

// waitForRoom waits until no more than most calls are without an answer.
func (p *pipe) waitForRoom(most int) bool {
	wait := patience
	if p.stuck {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for p.unanswered() > most {
		select {
		case <-p.answered:
			p.stuck = false
		case <-timer.C:
			p.stuck = true
			return false
		case <-p.closed:
			return false
		}
	}
	p.stuck = false
	return true
}

// note remembers which calls wait for an answer and which no longer do.
func (p *pipe) note(m received, together *array) {
	req, ok := m.Message.(*jsonrpc.Request)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.Method == methodInitialize {
		p.initialize = req.ID
	}
	if req.IsCall() {
		p.calls[req.ID] = &openCall{listens: req.Method == methodListen, taskIDs: m.TaskIDs, array: together}
		if together != nil {
			together.open++
		}
	}
	if m.Cancels == nil {
		return
	}
	var canceled any
	_ = json.Unmarshal(m.Cancels, &canceled) // it is valid
	id, err := jsonrpc.MakeID(canceled)
	if call := p.calls[id]; err == nil && call != nil {
		call.canceled = true
	}
}

// open returns a call that has no answer yet, or nil. Who has taken an answer may
// use its id again, before we know that it is written.
func (p *pipe) open(id jsonrpc.ID) *openCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	if call := p.calls[id]; call != nil && !call.answered {
		return call
	}
	return nil
}

// refuse answers a line that has no id to answer to.
func (p *pipe) refuse(code int64, message string) error {
	return p.refuseCall(nil, &jsonrpc.Error{Code: code, Message: message})
}

func (p *pipe) refuseCall(id json.RawMessage, reason *jsonrpc.Error) error {
	answer, err := json.Marshal(failure{"2.0", id, reason})
	if err != nil {
		return err
	}
	return p.write(append(answer, '\n'))
}

func (p *pipe) write(line []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.out.Write(line)
	return err
}

// taskIDs are the tasks that an open subscription wants to hear of.
func (p *pipe) taskIDs(subscription any) []string {
	if n, ok := subscription.(int64); ok {
		subscription = float64(n) // as MakeID has it
	}
	id, err := jsonrpc.MakeID(subscription)
	call := p.open(id)
	if err != nil || call == nil {
		return nil
	}
	return call.taskIDs
}

// send writes a message that the SDK does not know of.
func (p *pipe) send(message []byte) error { return p.write(append(message, '\n')) }

// writer is the pipe's other end. The SDK writes each message to it at once.
func (p *pipe) writer() io.WriteCloser { return pipeWriter{p} }

type pipeWriter struct{ *pipe }

func (w pipeWriter) Write(line []byte) (int, error) {
	m, _ := jsonrpc.DecodeMessage(line)
	if response, ok := m.(*jsonrpc.Response); ok {
		defer w.settle(response.ID) // once it is written: the session may end then
		line, n := w.due(response, line), len(line)
		if len(line) == 0 {
			return n, nil
		}
		if err := w.write(line); err != nil {
			return 0, err
		}
		return n, nil
	}
	if err := w.write(line); err != nil {
		return 0, err
	}
	return len(line), nil
}

// Close does nothing: the output is its owner's.
func (w pipeWriter) Close() error { return nil }

// due returns what is to be written when a call is answered: the answer, or that of
// its array if it is the last one; nothing if the client has canceled it.
func (p *pipe) due(response *jsonrpc.Response, line []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := p.calls[response.ID]
	if call == nil {
		return line
	}
	call.answered = true
	switch {
	case response.ID == p.initialize && response.Error == nil:
		var agreed struct{ ProtocolVersion string }
		_ = json.Unmarshal(response.Result, &agreed)
		p.arrays = agreed.ProtocolVersion != "" && agreed.ProtocolVersion < "2025-06-18"
	case call.array != nil:
		return call.array.answer(call, line)
	}
	if call.canceled {
		return nil
	}
	return line
}

// answer takes the answer of one call, and returns that of the array if it was the
// last one.
func (a *array) answer(call *openCall, line []byte) []byte {
	a.open--
	if !call.canceled {
		a.answers = append(a.answers, bytes.Clone(bytes.TrimSpace(line)))
	}
	if a.open > 0 || len(a.answers) == 0 {
		return nil
	}
	return fmt.Appendf(nil, "[%s]\n", bytes.Join(a.answers, []byte(",")))
}

// takesArrays reports whether the client may send arrays of messages.
func (p *pipe) takesArrays() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrays
}

// settle forgets a call that is answered: another one may have its id by now.
func (p *pipe) settle(id jsonrpc.ID) {
	p.mu.Lock()
	if call := p.calls[id]; call != nil && call.answered {
		delete(p.calls, id)
	}
	if id == p.initialize {
		p.initialize = jsonrpc.ID{}
	}
	p.mu.Unlock()
	select {
	case p.answered <- struct{}{}:
	default:
	}
}
