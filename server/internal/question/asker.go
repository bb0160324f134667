package question

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An Asker asks the user of a run, one round after the other.
type Asker struct {
	registry *Registry
	turn     chan struct{} // holds an element while it asks
	round    int           // number of the last round
}

// NewAsker returns an Asker whose rounds follow the round with that number.
func NewAsker(r *Registry, round int) *Asker {
	return &Asker{registry: r, turn: make(chan struct{}, 1), round: round}
}

// Ask waits until earlier questions are answered, then asks, and waits for the answers.
func (a *Asker) Ask(ctx context.Context, run Run, q abi.Questions) (abi.Answers, error) {
	select {
	case a.turn <- struct{}{}: // also if the run is about to be suspended: what it asks first is kept
	default:
		select {
		case a.turn <- struct{}{}:
		case <-ctx.Done():
			return abi.Answers{}, ctx.Err()
		}
	}
	defer func() { <-a.turn }()
	a.round++
	return a.registry.ask(ctx, run, a.round, q)
}

// ForRun returns a function that asks the user of a run that continues or starts over. Its
// rounds count from the time that the run has taken, so that no key repeats.
func (r *Registry) ForRun(run engine.Run) Func {
	a := NewAsker(r, int(run.Elapsed(time.Now()).Milliseconds()))
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		return a.Ask(ctx, Run{run.Session, run.ID}, q)
	}
}
