package sqlite_test

import (
	"context"
	"fmt"
	"os"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "data")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()

	engine, err := sqlite.Open(ctx, dir, sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := background.Run{ID: "bg_example", Session: "s", Tool: "primes", OutputCap: background.DefaultOutputCap}
	fmt.Println(engine.Submit(ctx, run))
	lease, err := engine.Claim(ctx, run.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Append(ctx, 0, []byte("2 3 5 7\n")))
	fmt.Println(engine.Close()) // the work is lost, what it said is not

	engine, err = sqlite.Open(ctx, dir, sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = engine.Close() }()
	chunk, err := engine.Tail(ctx, run.ID, 0, 100)
	fmt.Printf("%s%v\n", chunk.Data, err)
	lease, err = engine.Claim(ctx, run.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("attempt", lease.Run().Attempt)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// 2 3 5 7
	// <nil>
	// attempt 2
}
