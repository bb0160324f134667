package background_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func ExampleManager_Stop() {
	ctx := context.Background()
	started := make(chan struct{})
	m, err := background.New(ctx, background.Config{
		Grace: 10 * time.Minute, // to clean up
		Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (background.Outcome, error) {
			fmt.Fprintln(sink.Stdout(), "counting forever")
			close(started)
			select {
			case <-sink.Stopping(): // asked to stop: there is time to clean up
				return background.Outcome{}, errors.New("gave way")
			case <-ctx.Done(): // has to stop
				return background.Outcome{}, context.Cause(ctx)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := m.Spawn(ctx, "session-1", background.SpawnRequest{Tool: "count"})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-started

	stopped, err := m.Stop(ctx, "session-1", run.ID, background.StopRequest{Reason: "no longer needed"})
	fmt.Println(stopped.Status, err)
	checked, err := m.Check(ctx, "session-1", background.CheckRequest{IDs: []string{run.ID}})
	fmt.Println(checked.Reports[0].Output.Text, err)
	fmt.Println(m.Close(ctx))
	// Output:
	// canceled <nil>
	// counting forever
	// [system] Canceled by request.
	//  <nil>
	// <nil>
}

func ExampleSink() {
	sink := output.NewSink(100) // the first 75 bytes and the last 25
	for i := range 50 {
		fmt.Fprintf(sink.Stdout(), "this is step %d\n", 100+i)
	}
	fmt.Fprintln(sink.Stderr(), "\x1b[31mno!\x1b[0m")
	fmt.Println(output.Clean([]byte(sink.Output().String())))
	// Output:
	// this is step 100
	// this is step 101
	// this is step 102
	// this is step 103
	// this is
	// [system] 772 bytes omitted
	// 49
	// [stderr] no!
}
