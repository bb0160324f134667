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

// An asking is an operation of a run that asks its user. What it asks is kept with the run
// while that is suspended, so that its user can answer meanwhile, also after a restart, and
// the answer wakes it. Nil keeps nothing.
type asking struct {
	operation int32
	open      *atomic.Int32 // the operation whose open questions are kept; 0: none has
	kept      bool          // something of this one is
}

type askingKey struct{}

func askingOf(ctx context.Context) *asking {
	a, _ := ctx.Value(askingKey{}).(*asking)
	return a
}

// keptQuestion is what an operation has asked, and was answered.
type keptQuestion struct {
	Operation int32                   `json:"operation"`
	Asked     string                  `json:"asked"` // digest
	Round     int                     `json:"round"`
	Open      map[string]abi.Question `json:"open"`
	Given     map[string]abi.Answer   `json:"given"`
}

// newQuestion is what is asked in a round.
func newQuestion(q abi.Questions, round int) keptQuestion {
	k := keptQuestion{Round: round, Open: map[string]abi.Question{}, Given: map[string]abi.Answer{}}
	for key, question := range q.Questions {
		k.Open[k.unique(key)] = question
	}
	return k
}

// unique is the key of a question that no other round has.
func (k keptQuestion) unique(key string) string { return fmt.Sprintf("%s.%d", key, k.Round) }

// unsuspended stands for the operation of a run that cannot be suspended while it asks.
const unsuspended = -1

// load replaces what is about to be asked by what was kept of the same.
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

// show keeps what is asked while the run is running, for other hosts.
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

// givenElsewhere returns the answers that another host got. A failure is one to get them
// now: they are looked for again.
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

// leave keeps what is open while the run is suspended, and what was answered until a state
// is stored that knows of it.
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

// maxAnswered is how many operations are kept that were answered. A state that does not know
// of it has no more of them.
const maxAnswered = abi.MaxPending

// store keeps what an operation asks next to what others have asked.
func (a *asking) store(ctx context.Context, k keptQuestion) error {
	for {
		all, version, err := readKept(background.Question(ctx))
		if err != nil {
			return err
		}
		for _, one := range all {
			if one.Operation == k.Operation && one.Round == k.Round {
				take(k.Open, k.Given, one.Given) // another host got it meanwhile
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

// asksKept reports whether something that a run asks may be kept with it: also while its
// record does not have the state yet that it is suspended with.
func asksKept(run engine.Run) bool {
	return !run.Status.Terminal() && (run.StateSize > 0 || run.Status != engine.StatusQueued)
}

// questions returns what a run asks its user, by key; nil if it asks nothing.
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
		if one.Operation == operation { // what another host got is not asked any more
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

// answerKept answers what operations other than one have asked of a run that was suspended.
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
