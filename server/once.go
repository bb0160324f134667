package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
)

// Receipt is how a transport says whether the answer to a call was delivered. The
// service calls it before Call returns, with a function that the transport calls once
// it knows: with true when the whole answer has left this process, with false when it
// could not be sent. After false it calls it with true if the client gets the answer
// later.
//
// A call with a Receipt may be repeated by a client that never saw the answer. If its
// tool is neither readonly nor idempotent, the same call of the same session is
// attached to it while it still runs, and until its answer is delivered. The Note of
// the result says so.
type Receipt func(settle func(delivered bool))

// caller makes a call.
type caller func(ctx context.Context, c toolCall) (abi.Result, error)

// once makes a call, or attaches it to the one that it repeats. Acts says that its tool
// is neither readonly nor idempotent.
func (c toolCall) once(ctx context.Context, acts bool, call caller) (abi.Result, error) {
	req := c.req
	if !acts || req.Receipt == nil || req.Session == "" || req.Key != "" || req.DryRun {
		return call(ctx, c)
	}

	id := callID{req.Session, req.Tool, sumOf(req.Args)}
	for {
		lone, first := c.repeats.join(id, time.Now())
		if first {
			return c.first(ctx, lone, call)
		}
		if r, again, err := c.repeat(ctx, lone); !again {
			return r, err
		}
	}
}

// sumOf is a digest of arguments. In those of an ordinary size white space and the order
// of names do not count.
func sumOf(args json.RawMessage) [sha256.Size]byte {
	if len(args) <= 64<<10 {
		dec := json.NewDecoder(bytes.NewReader(args))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) == nil {
			args, _ = json.Marshal(v) // it was JSON
		}
	}
	return sha256.Sum256(args)
}

// first makes a call that others may be attached to. It is canceled when all callers
// have left, and not when just this one has.
func (c toolCall) first(ctx context.Context, lone *loneCall, call caller) (r abi.Result, err error) {
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	lone.cancel = cancel
	defer c.repeats.stay(ctx, lone)()

	returned := false
	defer func() {
		if !returned { // it panics
			c.repeats.end(lone, callEnd{again: true})
		}
	}()
	c.req.admitted = func(func()) { c.repeats.begun(lone) }
	r, err = call(working, c)
	returned = true

	again := errors.Is(err, plugins.ErrReplaced) || errors.Is(err, ErrAskAgain) || errors.Is(context.Cause(working), ErrAskAgain)
	c.repeats.end(lone, callEnd{r: r, err: err, run: c.req.note.run, again: again, at: time.Now()})
	c.req.Receipt(c.repeats.answer(lone))
	return r, err
}

const (
	textRunning = "This repeats a call of %s that was still running. It ran once, and this is its result. To run it again, call it again."
	textLost    = "This repeats a call of %s whose answer could not be delivered. It was not run again, and this is its result. To run it again, call it again."
	textStopped = "%s was not run again: the same call was stopped %s ago, before its end, because its caller had left. " +
		"It may have taken effect: check that first. To run it again, call it again"
	textTooLarge = "%s was not run again: the same call has ended, but its answer of %d bytes could not be delivered, and is too large to be kept. To run it again, call it again"
)

// repeat answers a call that repeats another one. Again reports that there is nothing
// to attach to any more: the answer was delivered, or nothing has happened.
func (c toolCall) repeat(ctx context.Context, lone *loneCall) (r abi.Result, again bool, err error) {
	defer c.repeats.stay(ctx, lone)()
	note, until := textRunning, []<-chan struct{}{lone.over}
	if isClosed(lone.over) || c.req.Tool == SpawnBackground { // which takes a moment: two at a time are meant as two
		note, until = textLost, append(until, c.repeats.settled(lone)) // an answer may be on its way
	}
	for _, happens := range until {
		select {
		case <-happens:
		case <-ctx.Done():
			r, err := canceled(ctx, abi.Result{})
			return r, false, err
		}
	}

	end, delivered := c.repeats.ended(lone)
	switch {
	case end.again:
		return r, true, nil
	case note == textRunning && !end.stopped:
		r, err = end.r, end.err
	case end.run != "":
		if r, again, err = c.repeatParked(ctx, lone, end.run, delivered); again {
			return r, true, nil
		}
	case delivered:
		return r, true, nil
	case end.stopped:
		r, note = toolError(textStopped, c.req.Tool, time.Since(end.at).Round(time.Second)), ""
	case end.large > 0:
		r, note = toolError(textTooLarge, c.req.Tool, end.large), ""
	default:
		r, err = end.r, end.err
	}

	c.req.note.run, c.req.note.repeat = end.run, true
	if note != "" {
		r.Note = fmt.Sprintf(note, c.req.Tool)
	}
	c.req.Receipt(c.repeats.answer(lone))
	return r, false, err
}

// repeatParked answers the repeat of a call that continues as a run.
func (c toolCall) repeatParked(ctx context.Context, lone *loneCall, id string, delivered bool) (r abi.Result, again bool, err error) {
	run, err := c.runs.Get(ctx, c.req.Session, id)
	if err != nil || run.Final() && delivered {
		c.repeats.forget(lone)
		return r, true, nil
	}
	if c.tool, err = c.lookup(c.req.Tool); err != nil {
		r, err := explain(err)
		return r, false, err
	}
	r, err = c.attach(ctx, run)
	return r, false, err
}
