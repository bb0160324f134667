package server

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
)

// narrate is the stage that describes progress in sentences for people.
func narrate(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		var last func(r abi.Result)
		c.work, last = narrated(c.tool, c.work)
		r, err := next(ctx, c)
		if !errors.Is(err, plugins.ErrReplaced) { // else nothing has run
			last(r)
		}
		return r, err
	}
}

// narrated returns a call whose progress reports carry the sentences of the tool's
// manifest. It reports the first one at once. The function narrate reports the last one,
// for a call that has succeeded or failed. No sentence shows a secret.
func narrated(tool *catalog.Tool, call host.Call) (_ host.Call, narrate func(r abi.Result)) {
	report := call.Progress
	if report == nil || tool.Narration.IsZero() {
		return call, func(abi.Result) {}
	}

	args, _ := tool.PublicArgs(call.Args)
	locale, stopping := call.Locale, call.Stopping // or the closure would keep all of call
	started := tool.Narrate(abi.PhaseStarted, locale, args)
	last := Progress{Total: -1, Narration: started}
	if started != "" {
		report(last)
	}
	call.Progress = func(p Progress) {
		p.Narration = started
		last = p
		report(p)
	}

	return call, func(r abi.Result) {
		phase := abi.PhaseFailed
		switch {
		case r.Kind == abi.Success:
			phase = abi.PhaseFinished
		case r.Kind == abi.CanceledKind || isClosed(stopping):
			return // stopped: neither finished nor failed
		}

		if sentence := tool.Narrate(phase, locale, args); sentence != "" {
			last.Narration = sentence
			report(last)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
