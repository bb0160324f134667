package vectors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/guest"
)

type waitArgs struct {
	Rounds [][]operation `json:"rounds"`
	Quiet  bool          `json:"quiet,omitempty"`
	First  bool          `json:"first,omitempty"`
	Error  string        `json:"error,omitempty"`
}

type operation struct {
	Op      string          `json:"op"`
	Request json.RawMessage `json:"request"`
	Cancel  bool            `json:"cancel,omitempty"`
}

// wait starts the operations of each round concurrently, and waits for their ends.
func wait(c *guest.Call, in waitArgs) (all [][]*hostResult, _ error) {
	for _, round := range in.Rounds {
		results := make([]*hostResult, len(round))
		all = append(all, results)
		ends := start(c, round)
		for range round {
			e := <-ends
			if e.err != nil {
				return nil, e.err
			}
			results[e.of] = &e.hostResult
			if !in.Quiet {
				fmt.Fprintln(c.Output(), e.of)
			}
			if in.First {
				return all, nil
			}
		}
	}

	if in.Error != "" {
		return nil, errors.New(in.Error)
	}
	return all, nil
}

// end is the outcome of an operation of a round.
type end struct {
	of int
	hostResult
	err error
}

// start starts operations, each on a goroutine of its own, and then cancels some of
// them.
func start(c *guest.Call, round []operation) <-chan end {
	ends := make(chan end, len(round))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i, o := range round {
		until := context.Background()
		if o.Cancel {
			until = ctx
		}
		begins := make(chan struct{})
		go func() {
			close(begins) // there is one thread: it runs until it waits for the operation
			e := end{of: i}
			err := c.HostContext(until, o.Op, o.Request, &e.Response)
			failure, refused := errors.AsType[*guest.HostError](err)
			switch {
			case refused:
				e.Failure = failure.Code
			case errors.Is(err, context.Canceled):
				e.Failure = "canceled"
			default:
				e.err = err
			}
			ends <- e
		}()
		<-begins
	}
	return ends
}

// stuck waits for something that cannot happen.
func stuck(*guest.Call, struct{}) (guest.None, error) {
	<-make(chan struct{})
	return guest.None{}, nil
}
