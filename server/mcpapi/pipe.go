package mcpapi

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxMessage = 16 << 20 // bytes; leaves room for the largest arguments of a call
	maxCalls   = 256      // unanswered requests on a pipe

	slotTimeout = 10 * time.Second // how long a request waits for a slot

	// drainTimeout is how long requests may still run after the input has ended. A client
	// that writes all its requests and closes its end gets its responses, even if the
	// first call has to load a runtime on a busy machine.
	drainTimeout = 30 * time.Second

	// goneInterval is how often, during that time, the pipe checks whether the client
	// still reads. A process whose client is gone still holds its runs, which the next
	// process needs.
	goneInterval = 100 * time.Millisecond

	// hungTimeout is the time limit for operations that normally take a moment. It is
	// long, because a slow machine must not be mistaken for a hung one.
	hungTimeout = 30 * time.Second
)

// pipe connects the client's streams to the SDK, and adds what the SDK lacks:
//
//   - An invalid line is answered with an error (JSON-RPC 2.0, section 5.1). The
//     SDK would end the session.
//   - A call that the client canceled is not answered (MCP,
//     basic/utilities/cancellation).
//   - While maxCalls requests have no answer, nothing is read.
//   - Each era of the protocol has its own session of the SDK. Within one session,
//     a client that has sent a single modern request, such as server/discover,
//     could not fall back to initialize, as Python's SDK does after 10 seconds.
type pipe struct {
	in     io.Reader
	lines  *bufio.Reader
	origin origin
	grace  time.Duration // time to answer open requests after the input has ended; negative means none

	legacy, modern *lane

	slots chan struct{}   // one for each unanswered request
	full  bool            // the last request found no slot in time
	last  chan struct{}   // closed when the last message was read
	stop  <-chan struct{} // closed when the process has to end
	ended chan struct{}   // closed when the pipe waits for nothing more
	err   error           // reason for the end; set before ended is closed

	writing sync.Mutex // held while one line is written
	out     io.Writer

	mu    sync.Mutex
	calls map[jsonrpc.ID]*openCall
	begun bool // initialize was answered

	closing sync.Once
	closed  chan struct{}
}

// openCall is an unanswered request.
type openCall struct {
	method  string
	lane    *lane
	receipt *receipt      // tracks whether its answer was written
	done    chan struct{} // closed when its answer is written
}

func newPipe(in io.Reader, out io.Writer, from origin, grace time.Duration) *pipe {
	p := &pipe{
		in: in, lines: bufio.NewReader(in), out: out, origin: from, grace: grace,
		slots: make(chan struct{}, maxCalls), last: make(chan struct{}), ended: make(chan struct{}),
		calls: map[jsonrpc.ID]*openCall{}, closed: make(chan struct{}),
	}
	p.origin.send = p.write
	p.legacy, p.modern = newLane(p), newLane(p)
	return p
}

// run forwards the client's messages until the input ends. If closing the input does not
// end a read, run outlives the sessions, and drops what it reads.
func (p *pipe) run() {
	defer close(p.ended)
	for {
		line, err := p.readLine()
		if err != nil {
			close(p.last)
			p.err = cmp.Or(p.drain(), err)
			return
		}

		if p.err = p.accept(line); p.err != nil {
			return
		}
	}
}

// readLine returns the next line without surrounding space. It answers a line that is
// too long with an error and returns an empty line. The last line may lack the line
// feed.
func (p *pipe) readLine() ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := p.lines.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxMessage; tooLong {
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
			return nil, p.refuse(nil, invalidRequest(fmt.Sprintf("the message has more than %d bytes", maxMessage)))
		}
		return bytes.TrimSpace(line), nil
	}
}

// accept forwards a message, or answers it.
func (p *pipe) accept(line []byte) error {
	if len(line) == 0 {
		return nil
	}

	m, message, problem := p.read(line)
	switch {
	case problem != nil && m.notifies():
		return nil // notifications are not answered
	case problem != nil:
		return p.refuse(m.ID, problem)
	case m.Method == methodPing && m.ID != nil && !m.modern(): // even if the server is busy
		return p.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
	}

	req, ok := message.(*jsonrpc.Request)
	if !ok || !req.IsCall() {
		p.lane(m).deliver(message)
		return nil
	}
	if !p.acquire() {
		return p.refuse(m.ID, busy(maxCalls))
	}

	from := p.origin
	from.taskIDs, from.task, from.receipt = m.TaskIDs, m.Task, &receipt{request: string(m.ID)}
	req.Extra = &mcp.RequestExtra{TokenInfo: from.token()}

	call := p.open(req.ID, m, from.receipt)
	call.lane.deliver(req)
	if m.Method == methodInitialize { // until its answer, the SDK would keep everything that follows in memory
		select {
		case <-call.done:
		case <-p.closed:
		}
	}
	return nil
}

// read parses a message, or returns its problem. Then the envelope has the ID of the
// request, if that is known.
func (p *pipe) read(line []byte) (envelope, jsonrpc.Message, *jsonrpc.Error) {
	m, problem := readEnvelope(line)
	if problem != nil {
		return m, nil, problem
	}
	message, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return m, nil, invalidRequest(err.Error())
	}
	if m.ID == nil || m.Method == "" {
		return m, message, nil
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[message.(*jsonrpc.Request).ID] != nil {
		return envelope{}, nil, invalidRequest("id: another request with this id has no answer yet") // the refusal would look like its answer
	}

	if problem := m.unsupported(); problem != nil {
		return m, nil, problem
	}
	if !p.begun && !m.modern() && m.Method != methodInitialize && m.Method != methodPing && m.Method != methodDiscover {
		return m, nil, invalidParams(fmt.Sprintf("%q needs the protocol version in _meta, or initialize before it", m.Method))
	}
	return m, message, nil
}

// lane returns the lane of a message. A cancellation belongs to the lane of its request.
// Answers belong to the legacy era: since 2026-07-28 servers send no requests.
func (p *pipe) lane(m envelope) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()

	if call := p.calls[toID(m.Cancels)]; call != nil {
		return call.lane
	}
	if m.modern() {
		return p.modern
	}
	return p.legacy
}

// acquire waits for a slot. After a timeout it does not wait again until a slot is free: the
// open calls may need one of the next messages, such as a cancellation or a user's answer.
func (p *pipe) acquire() bool {
	select {
	case p.slots <- struct{}{}:
		p.full = false
		return true
	default:
	}
	if p.full {
		return false
	}

	select {
	case p.slots <- struct{}{}:
		return true
	case <-time.After(slotTimeout):
		p.full = true
	case <-p.closed:
	}
	return false
}

func (p *pipe) open(id jsonrpc.ID, m envelope, r *receipt) *openCall {
	call := &openCall{method: m.Method, lane: p.lane(m), receipt: r, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[id] = call
	return call
}

// answer removes the call of a response. The client may reuse its id as soon as it has
// read the response. The caller calls settle once the response was written, or cannot be.
// A message that the SDK itself refused has no call.
func (p *pipe) answer(response *jsonrpc.Response) (settle func(written bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()

	call := p.calls[response.ID]
	if call == nil {
		return func(bool) {}
	}
	delete(p.calls, response.ID)
	p.begun = p.begun || call.method == methodInitialize && response.Error == nil
	return func(written bool) {
		call.receipt.settle(written)
		close(call.done)
		<-p.slots
	}
}

// drain waits for the answers to open requests, except subscriptions. It returns an error
// if some take too long.
func (p *pipe) drain() error {
	if p.grace < 0 {
		return nil
	}
	late := time.After(p.grace)
	look := time.NewTicker(goneInterval)
	defer look.Stop()

	for _, call := range p.unanswered() {
		for answered := call.method == methodListen; !answered; {
			select {
			case <-call.done:
				answered = true
			case <-look.C:
				if unread(p.out) {
					return nil
				}
			case <-late:
				return fmt.Errorf("canceled what was still running %s after the input had ended", p.grace)
			case <-p.stop:
				return nil
			case <-p.closed:
				return nil
			}
		}
	}
	return nil
}

func (p *pipe) unanswered() []*openCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.calls))
}

// refuse answers a message that the SDK does not see.
func (p *pipe) refuse(id json.RawMessage, reason *jsonrpc.Error) error {
	answer, err := json.Marshal(failure{"2.0", id, reason})
	if err != nil {
		return err
	}
	return p.write(answer)
}

// write sends a message, unless nobody reads it: SDKs that have closed the input end the
// process with SIGTERM after two seconds, and Python's fails if it gets a response then.
func (p *pipe) write(message []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if isClosed(p.last) && isClosed(p.stop) {
		return io.ErrClosedPipe
	}
	_, err := p.out.Write(append(message, '\n'))
	return err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Close ends both sessions. It also unblocks a read if the input can be closed.
func (p *pipe) Close() error {
	p.closing.Do(func() { close(p.closed) })
	if c, ok := p.in.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
