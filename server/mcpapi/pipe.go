package mcpapi

import (
	"bufio"
	"bytes"
	"cmp"
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
// asks whether that is needed, the one that may take long, the one that cancels,
// and the one call that is answered when the session ends.
const (
	methodInitialize = "initialize"
	methodDiscover   = "server/discover"
	methodCall       = "tools/call"
	methodCancelled  = "notifications/cancelled"
	methodListen     = "subscriptions/listen"
)

// pipe stands between the client's streams and the SDK, for what the SDK does not
// do. Each message goes to the session of its era, see lane, so that both may be
// spoken, in any order. A line that is no message is answered with an error, as
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
	stuck bool          // calls waited for room in vain, and none was answered since
	ended chan struct{} // closed when the input has ended
	err   error         // why, once it has

	legacy, modern *lane

	writing sync.Mutex // one line at a time
	out     io.Writer

	mu         sync.Mutex
	calls      map[jsonrpc.ID]*openCall // those without an answer yet
	initialize jsonrpc.ID               // the last call of that method
	agreed     string                   // the revision that initialize agreed on; "" before
	answered   chan struct{}            // has room for one: another call was answered

	closing sync.Once
	closed  chan struct{}
}

// openCall is a call that has no answer yet.
type openCall struct {
	lane     *lane
	answered bool // its answer is being written
	canceled bool
	tool     bool     // of a tool, which may take long
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
	p := &pipe{
		in: in, grace: grace, lines: bufio.NewReader(in), ended: make(chan struct{}), out: out,
		calls: map[jsonrpc.ID]*openCall{}, answered: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	p.legacy, p.modern = newLane(p), newLane(p)
	return p
}

// drainGrace is how long calls of tools that were made before the input ended may
// still be answered: a client that writes all it has to ask and closes its end
// gets its answers, and one that went away keeps the process for no longer.
const drainGrace = time.Second

// hung is how long Run waits for what takes a moment: what takes that long never
// ends. A machine that is slow, or stands still for a while, must not be taken for
// it.
const hung = 30 * time.Second

// run hands the client's messages to the sessions until the input ends. A read
// that closing the input does not end outlives them, and what it reads is
// dropped.
func (p *pipe) run() {
	defer close(p.ended)
	for p.err == nil {
		var line []byte
		if line, p.err = p.line(); p.err != nil {
			p.drain()
			return
		}
		p.err = p.accept(line)
	}
}

// drain waits for the answers of the calls that were made: those of tools for the
// grace, and those that take a moment for as long as it is one.
func (p *pipe) drain() {
	grace, late := time.NewTimer(p.grace), time.NewTimer(hung)
	defer grace.Stop()
	defer late.Stop()
	waited := func(c *openCall) bool { return !c.listens }
	for p.grace > 0 && p.count(waited) > 0 {
		select {
		case <-p.answered:
		case <-grace.C:
			waited = func(c *openCall) bool { return !c.listens && !c.tool }
		case <-late.C:
			return
		case <-p.closed:
			return
		}
	}
}

func (p *pipe) unanswered() int { return p.count(func(c *openCall) bool { return !c.listens }) }

// count returns how many calls there are of a kind that have no answer yet.
func (p *pipe) count(is func(*openCall) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, call := range p.calls {
		if is(call) {
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
	if !p.begun() {
		return io.ErrClosedPipe
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
	received, err := p.read(list, isArray)
	var together *array
	if isArray {
		together = &array{}
	}
	switch {
	case err != nil && err.quiet:
		return nil
	case err != nil:
		return p.refuseCall(err.to, err.Error)
	case p.room(received):
		to := make([]*lane, len(received))
		for i, m := range received {
			to[i] = p.note(m, together)
		}
		for i, m := range received {
			to[i].take(m.Message)
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
func (p *pipe) read(list []json.RawMessage, isArray bool) (all []received, refused *refusal) {
	ids := map[jsonrpc.ID]bool{}
	for _, one := range list {
		m, problem := readEnvelope(one)
		if problem == nil && m.ID != nil {
			problem = cmp.Or(m.unsupported(), p.premature(m))
		}
		if problem == nil && isArray && m.modern() {
			problem = invalidMessage("arrays are for revisions before 2025-06-18")
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

// premature returns what is wrong with a call that says no revision where none
// was agreed on. What is asked for is what 2026-07-28 asks of a request that
// lacks its _meta; earlier revisions leave it open.
func (p *pipe) premature(m envelope) *jsonrpc.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := m.Method == "" || m.Method == methodInitialize || m.Method == methodPing || m.Method == methodDiscover
	if free || p.agreed != "" || m.modern() {
		return nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("%q needs the protocol version in _meta, or initialize before it", m.Method)}
}

// patience is how long a call waits for room. Later ones wait no more, until
// another call was answered: behind them may be what those that are running wait
// for, the answer of a user or a cancellation.
const patience = 10 * time.Second

// room waits until there is room for the calls among messages.
func (p *pipe) room(list []received) bool {
	n, most := 0, maxCalls
	for _, m := range list {
		if req, ok := m.Message.(*jsonrpc.Request); ok && req.IsCall() {
			n++
			if len(list) == 1 && req.Method == methodPing { // it has to tell that the server is there
				most += morePings
			}
		}
	}
	return n == 0 || p.unanswered()+n <= most || p.waitForRoom(most-n)
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

// note remembers which calls wait for an answer and which no longer do, and
// returns where the message goes.
func (p *pipe) note(m received, together *array) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.lane(m.envelope)
	if call := p.canceledBy(m.envelope); call != nil {
		call.canceled = true
	}
	req, ok := m.Message.(*jsonrpc.Request)
	if !ok || !req.IsCall() {
		return to
	}
	if req.Method == methodInitialize {
		p.initialize = req.ID
	}
	p.calls[req.ID] = &openCall{lane: to, tool: req.Method == methodCall, listens: req.Method == methodListen, taskIDs: m.TaskIDs, array: together}
	if together != nil {
		together.open++
	}
	return to
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
		p.agreed = agreed.ProtocolVersion
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
	return p.agreed != "" && p.agreed < "2025-06-18"
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
