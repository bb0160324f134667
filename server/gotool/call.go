package gotool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/typed"
)

// Limits of the output of one call, as for plugins.
const (
	maxBlocks  = 256     // content blocks in one result
	maxMessage = 512     // bytes of a progress message
	maxUnit    = 32      // bytes of a progress unit
	maxSummary = 1000    // bytes of a summary
	maxError   = 8 << 10 // bytes of an error text
	maxDepth   = 16      // depth of the calls that handlers make
)

// ErrOver is the error of writes after the call has ended.
var ErrOver = errors.New("the call has ended")

// Call is one call to a tool, for its handler. It is safe for concurrent use. Its methods
// have no effect after the call has ended.
type Call struct {
	tool  *Loaded
	req   host.Call
	log   *slog.Logger
	depth int // number of handlers that the call is nested in
	end   context.CancelCauseFunc

	mu       sync.Mutex
	said     host.Progress // last report
	summary  string
	waited   time.Duration
	over     bool
	returned bool // the handler has returned
	late     bool // the caller did not wait for the handler to return
	written  int64
	failed   error // error of the limit that was reached
	content  []abi.Block
	inner    abi.Usage // usage of the plugin tools that the handler called
}

// ID identifies the call in logs. If the call began as a background run, it is the id of
// the run.
func (c *Call) ID() string { return c.req.ID }

// Session returns the session of the call, or "" if it has none.
func (c *Call) Session() string { return c.req.Session }

// Attempt returns which attempt of a background run this is, from 1. For any other call, it
// is 1.
func (c *Call) Attempt() int { return max(c.req.Attempt, 1) }

// Locale returns the caller's language in BCP 47, such as de-CH, or "" if it is unknown.
func (c *Call) Locale() string { return c.req.Locale }

// Log returns a logger for operators, which names the call. Models never see it.
func (c *Call) Log() *slog.Logger { return c.log }

// Progress reports how much of a total is done, in any unit. A negative total means that
// the total is unknown. The message may be empty, and is cut to 512 bytes. A report is
// dropped if done is negative, or if a number is not finite.
func (c *Call) Progress(done, total float64, message string) {
	finite := func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
	if !finite(done) || !finite(total) || done < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.Done, c.said.Total, c.said.Message = done, total, clip(message, maxMessage)
	c.report()
}

// Status reports in a few words what the tool is doing. It replaces the previous
// status.
func (c *Call) Status(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.Status = oneLine(text, maxMessage)
	c.report()
}

// ProgressUnit names the unit of the numbers that [Call.Progress] reports, such as "files".
// It applies from the next report on.
func (c *Call) ProgressUnit(unit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.Unit = oneLine(unit, maxUnit)
}

// report passes the last report on. c.mu is held.
func (c *Call) report() {
	if !c.over && c.req.Progress != nil {
		c.req.Progress(c.said)
	}
}

// Summary reports the outcome of the call in a sentence or two, for notices and lists
// that do not show the result. Only the last summary is kept.
func (c *Call) Summary(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.summary = oneLine(text, maxSummary)
}

// Output returns a writer for the live output of the call. The output of a background run is
// stored with the run.
func (c *Call) Output() io.Writer { return stream{c, c.req.Stdout} }

// Stderr returns a writer for the call's second stream of live output, its standard error.
func (c *Call) Stderr() io.Writer { return stream{c, c.req.Stderr} }

type stream struct {
	call *Call
	to   io.Writer // destination of the output; nil discards it
}

func (s stream) Write(p []byte) (int, error) {
	s.call.mu.Lock()
	defer s.call.mu.Unlock()
	if err := s.call.count(len(p)); err != nil {
		return 0, err
	}
	if s.to != nil {
		_, _ = s.to.Write(p) // a follower that is gone does not end the call
	}
	return len(p), nil
}

// count counts output against the limit of the call, and ends the call when it is reached.
// c.mu is held.
func (c *Call) count(n int) error {
	limit := c.req.Policy.Output
	if limit <= 0 {
		limit = host.DefaultOutput
	}
	switch {
	case c.over:
		return ErrOver
	case c.failed != nil:
		return c.failed
	case c.written+int64(n) > limit:
		c.failed = fmt.Errorf("%w: the tool wrote more than the %d bytes allowed", host.ErrOutput, limit)
		c.end(c.failed)
		return c.failed
	}
	c.written += int64(n)
	return nil
}

// Content appends a block to the result. A result has at most 256 blocks, and they count as
// output. The error says why a block was refused.
func (c *Call) Content(b abi.Block) error {
	data, err := typed.Marshal(b)
	if err != nil {
		return err
	}
	if b, err = abi.DecodeBlock(data); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.content) == maxBlocks {
		return fmt.Errorf("at most %d content blocks are allowed", maxBlocks)
	}
	if err := c.count(len(data)); err != nil {
		return err
	}
	c.content = append(c.content, b)
	return nil
}

// Ask asks the user all questions at once, each under a key that the tool chooses. It
// waits for the answers, which fit their schemas. Ask before the tool changes anything:
// a client may answer by repeating the call. If no user can be asked, the error matches
// host.ErrDenied.
func (c *Call) Ask(ctx context.Context, questions map[string]abi.Question) (map[string]abi.Answer, error) {
	data, err := json.Marshal(abi.Questions{Questions: questions})
	if err != nil {
		return nil, err
	}
	asked, err := abi.DecodeQuestions(data)
	if err != nil {
		return nil, err
	}
	if c.req.Ask == nil {
		return nil, fmt.Errorf("%w: nobody can be asked here", host.ErrDenied)
	}
	answers, err := c.req.Ask(ctx, asked)
	return answers.Answers, err
}

// CallTool calls another tool by the name that agents use, in the session of this call. The
// call is checked like a call by an agent. A readonly tool can only call readonly tools, and a
// tool that declares open_world false cannot call tools that reach the network. Pass the
// handler's context.
//
// The result says how the call ended, even if it failed. The error matches host.ErrDenied
// if the call was not made.
func (c *Call) CallTool(ctx context.Context, name string, args any) (abi.Result, error) {
	data, err := typed.Marshal(args)
	if err != nil {
		return abi.Result{}, fmt.Errorf("the arguments of %s: %w", name, err)
	}
	if c.req.CallTool == nil {
		return abi.Result{}, fmt.Errorf("%w: no other tools can be called here", host.ErrDenied)
	}

	r, err := c.req.CallTool(ctx, host.ToolCall{Tool: name, Args: data, Caller: c.req.Caller})
	c.mu.Lock()
	c.inner.Fuel += r.Usage.Fuel
	c.inner.CPU += r.Usage.CPU
	c.inner.MemoryPeak = max(c.inner.MemoryPeak, r.Usage.MemoryPeak)
	c.mu.Unlock()
	if refusal, ok := errors.AsType[*host.Refusal](err); ok {
		return r, fmt.Errorf("%w: %s", host.ErrDenied, refusal.Message)
	}
	return r, nil
}

// SaveCheckpoint stores at most 1 MiB with a background run, replacing any earlier
// checkpoint, so that the next attempt can resume. It is durable once it returns nil.
// While the storage is full or unreachable, it waits until ctx is done. In a call that is
// not a background run it does nothing and returns nil.
func (c *Call) SaveCheckpoint(ctx context.Context, data []byte) error {
	switch {
	case len(data) > host.MaxCheckpoint:
		return fmt.Errorf("a checkpoint has at most %d bytes", host.MaxCheckpoint)
	case c.req.Checkpoint == nil:
		return nil
	}
	err := c.req.Checkpoint.Save(ctx, data)
	if errors.Is(err, host.ErrDenied) { // it is not a run yet
		return nil
	}
	return err
}

// LoadCheckpoint returns the last checkpoint of an earlier attempt of the run, or nil.
func (c *Call) LoadCheckpoint() []byte {
	if c.req.Checkpoint == nil {
		return nil
	}
	return c.req.Checkpoint.Load()
}

// oneLine returns a text on one line, cut to n bytes.
func oneLine(s string, n int) string { return clip(strings.Join(strings.Fields(s), " "), n) }

// clip returns a text as valid UTF-8, cut to n bytes.
func clip(s string, n int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
