package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// An asking is an operation of a run that asks its user. While the run is suspended, its
// questions are stored with it: the user can answer them, even after a restart, and the
// answer wakes the run. A nil asking stores nothing.
type asking struct {
	operation int32
	open      *atomic.Int32 // operation whose open questions are stored; 0: none
	kept      bool          // questions of this operation are stored
}

type askingKey struct{}

func askingOf(ctx context.Context) *asking {
	a, _ := ctx.Value(askingKey{}).(*asking)
	return a
}

// keptQuestion holds the questions of an operation, and the answers so far.
type keptQuestion struct {
	Operation int32                   `json:"operation"`
	Asked     string                  `json:"asked"` // digest
	Round     int                     `json:"round"`
	Open      map[string]abi.Question `json:"open"`
	Given     map[string]abi.Answer   `json:"given"`
}

// newQuestion returns the questions of a round.
func newQuestion(q abi.Questions, round int) keptQuestion {
	k := keptQuestion{Round: round, Open: map[string]abi.Question{}, Given: map[string]abi.Answer{}}
	for key, question := range q.Questions {
		k.Open[k.unique(key)] = question
	}
	return k
}

// unique returns the key of a question with its round, so that no other round has it.
func (k keptQuestion) unique(key string) string { return fmt.Sprintf("%s.%d", key, k.Round) }

// unsuspended is the operation of a run that cannot be suspended while it asks.
const unsuspended = -1

// load replaces k by what was stored of the same questions.
func (a *asking) load(ctx context.Context, q abi.Questions, k *keptQuestion) error {
	if a == nil {
		return nil
	}
	if k.Operation = a.operation; a.operation == unsuspended { // it may ask the same again
		return nil
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	k.Asked = hex.EncodeToString(sum[:])

	all, _, err := readKept(background.Question(ctx))
	for _, one := range all {
		if one.Operation == k.Operation && one.Asked == k.Asked && len(one.Open)+len(one.Given) == len(q.Questions) {
			*k, a.kept = one, true
		}
	}
	return err
}

// show stores the questions of a running run for other hosts.
func (a *asking) show(ctx context.Context, k keptQuestion) error {
	err := a.store(context.WithoutCancel(ctx), k)
	if errors.Is(err, output.ErrNoRun) { // a call of this host alone
		return nil
	}
	if err != nil {
		return fmt.Errorf("keeping what a run asks: %w", err)
	}
	a.kept = true
	return nil
}

// givenElsewhere returns the answers that another host received. Errors are dropped: it
// is called again.
func (k keptQuestion) givenElsewhere(ctx context.Context) map[string]abi.Answer {
	all, _, err := readKept(background.Question(ctx))
	if err != nil {
		return nil
	}
	for _, one := range all {
		if one.Operation == k.Operation && one.Round == k.Round {
			return one.Given
		}
	}
	return nil
}

// leave stores the open questions while the run is suspended, and the answered ones until
// a stored state includes the answers.
func (a *asking) leave(ctx context.Context, k keptQuestion, asked error) error {
	suspended := asked != nil && a != nil && a.operation != unsuspended && !withdrawn(ctx)
	if a == nil || !a.kept && !suspended {
		return nil
	}
	if asked != nil && !suspended {
		k.Open = nil
	}
	if err := a.store(context.WithoutCancel(ctx), k); err != nil {
		return fmt.Errorf("keeping what a run asks: %w", err)
	}
	a.kept = true
	if suspended {
		a.open.Store(a.operation)
	} else {
		a.open.CompareAndSwap(a.operation, 0)
	}
	return nil
}

// maxAnswered bounds the stored operations with answers that no state includes yet. A
// state has no more operations than that.
const maxAnswered = abi.MaxPending

// store adds the questions of an operation to those of the others.
func (a *asking) store(ctx context.Context, k keptQuestion) error {
	for {
		all, version, err := readKept(background.Question(ctx))
		if err != nil {
			return err
		}
		for _, one := range all {
			if one.Operation == k.Operation && one.Round == k.Round {
				take(k.Open, k.Given, one.Given) // answered on another host meanwhile
			}
		}
		all = append(slices.DeleteFunc(all, func(one keptQuestion) bool { return one.Operation == k.Operation }), k)
		data, err := json.Marshal(all[max(0, len(all)-maxAnswered):])
		if err == nil {
			err = background.SaveQuestion(ctx, data, version)
		}
		if !errors.Is(err, engine.ErrConflict) {
			return err
		}
	}
}

func readKept(data json.RawMessage, version int64, err error) ([]keptQuestion, int64, error) {
	var all []keptQuestion
	if err == nil && data != nil {
		err = json.Unmarshal(data, &all)
	}
	return all, version, err
}

// asksKept reports whether the questions of a run may be stored with it, even before its
// record has the state of its suspension.
func asksKept(run engine.Run) bool {
	return !run.Status.Terminal() && (run.StateSize > 0 || run.Status != engine.StatusQueued)
}

// questions returns a run's open questions by key; nil without any.
func (v Session) questions(ctx context.Context, run engine.Run) map[string]abi.Question {
	open, operation := v.service.asked.open(runKey{run.Session, run.ID})
	if !asksKept(run) {
		return open
	}
	all, _, err := readKept(v.service.runs.Mailbox(run.Session, run.ID).Question(ctx))
	if err != nil {
		v.service.log.Warn("what a run asks was not read", "task_id", run.ID, "error", err)
	}
	for _, one := range all {
		if one.Operation == operation { // answered on another host
			maps.DeleteFunc(open, func(key string, _ abi.Question) bool { _, given := one.Given[key]; return given })
		}
		if one.Operation == operation || len(one.Open) == 0 {
			continue
		}
		if open == nil {
			open = map[string]abi.Question{}
		}
		maps.Copy(open, one.Open)
	}
	return open
}

// answerKept answers the stored questions of a suspended run, except those of one operation.
func (v Session) answerKept(ctx context.Context, run engine.Run, operation int32, answers map[string]abi.Answer) error {
	box := v.service.runs.Mailbox(run.Session, run.ID)
	for {
		all, version, err := readKept(box.Question(ctx))
		if err != nil {
			return err
		}
		changed := false
		for i := range all {
			if one := &all[i]; one.Operation != operation {
				if one.Given == nil {
					one.Given = map[string]abi.Answer{}
				}
				changed = take(one.Open, one.Given, answers) || changed
			}
		}
		if !changed {
			return nil
		}

		data, err := json.Marshal(all)
		if err == nil {
			err = box.Answer(ctx, data, version)
		}
		switch {
		case errors.Is(err, engine.ErrNotFound): // the run has ended
			return nil
		case !errors.Is(err, engine.ErrConflict):
			return err
		}
	}
}
