package question

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/dryrun"
)

// Open returns a run's open questions by key; nil if there are none.
func (r *Registry) Open(ctx context.Context, run engine.Run) map[string]abi.Question {
	open, asking := r.local(Run{run.Session, run.ID})
	if !mayStore(run) {
		return open
	}
	all, _, err := readRounds(ctx, r.Mailbox(run.Session, run.ID))
	if err != nil {
		r.Log.Warn("what a run asks was not read", "task_id", run.ID, "error", err)
	}
	for _, one := range all {
		if one.Operation == asking { // answered on another host
			maps.DeleteFunc(open, func(key string, _ abi.Question) bool { _, given := one.Given[key]; return given })
		}
		if one.Operation == asking || len(one.Open) == 0 {
			continue
		}
		if open == nil {
			open = map[string]abi.Question{}
		}
		maps.Copy(open, one.Open)
	}
	return open
}

// mayStore reports whether the questions of a run may be stored with it, even before its
// record has the state of its suspension.
func mayStore(run engine.Run) bool {
	return !run.Status.Terminal() && (run.StateSize > 0 || run.Status != engine.StatusQueued)
}

// Answer answers questions of a run, which continues once all are answered. Answers to
// closed or unknown questions are dropped. If an answer does not fit its question, the
// error matches [abi.ErrAnswer], and all questions stay open. A dry run only checks.
func (r *Registry) Answer(ctx context.Context, run engine.Run, answers map[string]abi.Answer) error {
	checked := map[string]abi.Answer{}
	for key, question := range r.Open(ctx, run) {
		if a, ok := answers[key]; ok {
			if err := Check(key, question, a); err != nil {
				return err
			}
			checked[key] = a
		}
	}
	if dryrun.In(ctx) || len(checked) == 0 {
		return nil
	}

	return r.give(Run{run.Session, run.ID}, checked, func(asking int32) error {
		if !mayStore(run) {
			return nil
		}
		if r.SharedEngine { // other hosts see what is answered here
			asking = 0
		}
		return answerStored(ctx, r.Mailbox(run.Session, run.ID), asking, checked)
	})
}

// Watch returns a channel that is closed as soon as one of these runs asks its user
// something, or at once if one already does. A run without a record is watched on this host
// only. Call stop when done.
func (r *Registry) Watch(ctx context.Context, runs []engine.Run) (asked <-chan struct{}, stop func()) {
	keys := make([]Run, len(runs))
	for i, run := range runs {
		keys[i] = Run{run.Session, run.ID}
	}
	runs = slices.DeleteFunc(slices.Clone(runs), func(run engine.Run) bool { return run.Status == "" })
	if r.anyOpen(ctx, runs) {
		already := make(chan struct{})
		close(already)
		return already, func() {}
	}
	local, stop := r.watch(keys)
	if !r.SharedEngine {
		return local, stop
	}
	return r.poll(ctx, runs, local, stop)
}

// anyOpen reports whether one of these runs asks its user something.
func (r *Registry) anyOpen(ctx context.Context, runs []engine.Run) bool {
	return slices.ContainsFunc(runs, func(run engine.Run) bool { return len(r.Open(ctx, run)) > 0 })
}

// poll is like Watch, but for runs that may be on other hosts: it polls every second.
func (r *Registry) poll(ctx context.Context, runs []engine.Run, local <-chan struct{}, unwatch func()) (asked <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	either := make(chan struct{})

	var polling sync.WaitGroup
	polling.Go(func() {
		tick := time.NewTicker(PollInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-local:
				close(either)
				return
			case <-tick.C:
				if r.anyOpen(ctx, runs) {
					close(either)
					return
				}
			}
		}
	})

	return either, func() {
		cancel()
		polling.Wait()
		unwatch()
	}
}

// maxMessage is the maximum length of a question's message as an agent sees it, in characters.
const maxMessage = 500

// Messages returns the messages of questions, cleaned for a model. The parameter room is the
// maximum length of all of them together, in characters.
func Messages(open map[string]abi.Question, room int) (texts []string) {
	for _, key := range slices.Sorted(maps.Keys(open)) {
		text := []rune(strings.Join(strings.Fields(output.Clean([]byte(open[key].Message))), " "))
		if most := min(room/len(open), maxMessage); len(text) > most {
			text = append(text[:most], '…')
		}
		texts = append(texts, string(text))
	}
	return texts
}
