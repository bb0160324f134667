package question

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// An operation of a run asks its user. While the run is suspended, its questions are
// stored with it: the user can answer them, even after a restart, and the answer wakes
// the run. A nil operation stores nothing.
type operation struct {
	number int32
	open   *atomic.Int32 // number of the operation whose open questions are stored; 0: none
	kept   bool          // questions of this operation are stored
}

type operationKey struct{}

// WithOperation returns a context for the questions of an operation of a run that can be
// suspended while it asks. While the questions are stored as open, the parameter open holds
// the operation's number, otherwise 0.
func WithOperation(ctx context.Context, number int32, open *atomic.Int32) context.Context {
	return context.WithValue(ctx, operationKey{}, &operation{number: number, open: open})
}

func operationOf(ctx context.Context) *operation {
	o, _ := ctx.Value(operationKey{}).(*operation)
	return o
}

// Mailbox gives access to the stored questions of a run, see [background.Mailbox].
type Mailbox interface {
	Question(ctx context.Context) (data json.RawMessage, version int64, err error)
	Answer(ctx context.Context, data json.RawMessage, version int64) error
}

// ownMailbox is the mailbox of the run whose work a context belongs to.
type ownMailbox struct{}

func (ownMailbox) Question(ctx context.Context) (json.RawMessage, int64, error) {
	return background.Question(ctx)
}

func (ownMailbox) Answer(ctx context.Context, data json.RawMessage, version int64) error {
	return background.SaveQuestion(ctx, data, version)
}

// A round holds the questions that an operation asks at once, and the answers so far.
type round struct {
	Operation int32                   `json:"operation"`
	Asked     string                  `json:"asked"` // digest
	Round     int                     `json:"round"`
	Open      map[string]abi.Question `json:"open"`
	Given     map[string]abi.Answer   `json:"given"`
}

// newRound returns the questions of a round.
func newRound(q abi.Questions, number int) round {
	r := round{Round: number, Open: map[string]abi.Question{}, Given: map[string]abi.Answer{}}
	for key, question := range q.Questions {
		r.Open[r.unique(key)] = question
	}
	return r
}

// unique returns the key of a question with its round, so that no other round has it.
func (r round) unique(key string) string { return fmt.Sprintf("%s.%d", key, r.Round) }

// unsuspended is the operation of a run that cannot be suspended while it asks.
const unsuspended = -1

// isSame reports whether both belong to the same operation, in the same round.
func (r round) isSame(other round) bool {
	return r.Operation == other.Operation && r.Round == other.Round
}

// readRounds returns the stored rounds of a run, and their version.
func readRounds(ctx context.Context, box Mailbox) (all []round, version int64, err error) {
	data, version, err := box.Question(ctx)
	if err == nil && data != nil {
		err = json.Unmarshal(data, &all)
	}
	return all, version, err
}

// changeRounds replaces the stored rounds of a run with those that change returns, or leaves
// them as they are if it returns nil. It calls change again if somebody else has changed
// them in between.
func changeRounds(ctx context.Context, box Mailbox, change func(all []round) []round) error {
	for {
		all, version, err := readRounds(ctx, box)
		if err != nil {
			return err
		}
		if all = change(all); all == nil {
			return nil
		}

		data, err := json.Marshal(all)
		if err == nil {
			err = box.Answer(ctx, data, version)
		}
		if !errors.Is(err, engine.ErrConflict) {
			return err
		}
	}
}

// load replaces r with the stored round of the same questions, if there is one.
func (o *operation) load(ctx context.Context, q abi.Questions, r *round) error {
	if o == nil {
		return nil
	}
	if r.Operation = o.number; o.number == unsuspended { // it may ask the same again
		return nil
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	r.Asked = hex.EncodeToString(sum[:])

	all, _, err := readRounds(ctx, ownMailbox{})
	for _, one := range all {
		if one.Operation == r.Operation && one.Asked == r.Asked && len(one.Open)+len(one.Given) == len(q.Questions) {
			*r, o.kept = one, true
		}
	}
	return err
}

// show stores the questions of a running run for other hosts.
func (o *operation) show(ctx context.Context, r round) error {
	err := o.store(ctx, r)
	if errors.Is(err, output.ErrNoRun) { // a call of this host alone
		return nil
	}
	return err
}

// givenElsewhere returns the answers that another host received. Errors are dropped: it
// is called again.
func (r round) givenElsewhere(ctx context.Context) map[string]abi.Answer {
	all, _, err := readRounds(ctx, ownMailbox{})
	if i := slices.IndexFunc(all, r.isSame); err == nil && i >= 0 {
		return all[i].Given
	}
	return nil
}

// leave stores the open questions while the run is suspended, and the answered ones until
// a stored state includes the answers.
func (o *operation) leave(ctx context.Context, r round, asked error) error {
	suspended := asked != nil && o != nil && o.number != unsuspended && !Withdrawn(ctx)
	if o == nil || !o.kept && !suspended {
		return nil
	}
	if asked != nil && !suspended {
		r.Open = nil
	}
	if err := o.store(ctx, r); err != nil {
		return err
	}

	if suspended {
		o.open.Store(o.number)
	} else {
		o.open.CompareAndSwap(o.number, 0)
	}
	return nil
}

// Withdrawn reports whether a context ended because its operation was abandoned. Any
// other end means that the run is suspended.
func Withdrawn(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, host.ErrWithdrawn) || errors.Is(cause, context.DeadlineExceeded)
}

// maxAnswered bounds the operations that are stored with answers that no state includes yet.
// A state has no more operations than that.
const maxAnswered = abi.MaxPending

// store adds the questions of an operation to the stored questions of the others.
func (o *operation) store(ctx context.Context, r round) error {
	err := changeRounds(context.WithoutCancel(ctx), ownMailbox{}, func(all []round) []round {
		for _, one := range all {
			if r.isSame(one) {
				take(r.Open, r.Given, one.Given) // answered on another host meanwhile
			}
		}
		all = append(slices.DeleteFunc(all, func(one round) bool { return one.Operation == r.Operation }), r)
		return all[max(0, len(all)-maxAnswered):]
	})
	if err != nil {
		return fmt.Errorf("keeping what a run asks: %w", err)
	}
	o.kept = true
	return nil
}

// answerStored answers the stored questions of a suspended run, except those of one
// operation.
func answerStored(ctx context.Context, box Mailbox, except int32, answers map[string]abi.Answer) error {
	err := changeRounds(ctx, box, func(all []round) (changed []round) {
		for i := range all {
			one := &all[i]
			if one.Given == nil {
				one.Given = map[string]abi.Answer{}
			}
			if one.Operation != except && take(one.Open, one.Given, answers) {
				changed = all
			}
		}
		return changed
	})
	if errors.Is(err, engine.ErrNotFound) { // the run has ended
		return nil
	}
	return err
}

// Forget removes the stored questions of the run whose work ctx belongs to, before the run
// starts over: its operations will get other numbers.
func Forget(ctx context.Context) error {
	return changeRounds(ctx, ownMailbox{}, func(all []round) []round { return all[:0] })
}
