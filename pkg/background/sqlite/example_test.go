package sqlite_test

import (
	"context"
	"fmt"
	"os"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "data")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	if err := work(ctx, dir); err != nil {
		fmt.Println(err)
	}
	if err := recoverWork(ctx, dir); err != nil {
		fmt.Println(err)
	}
	// Output:
	// attempt 1
	// orphan bg_example: 2 3 5 7
	// attempt 2
}

// work starts a run, and closes the engine before it has ended.
func work(ctx context.Context, dir string) error {
	store, err := sqlite.Open(ctx, dir, sqlite.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	worker, err := store.Join(ctx, engine.WorkerInfo{})
	if err != nil {
		return err
	}

	run := engine.Run{ID: "bg_example", Session: "s", Tool: "primes", OutputCap: 1 << 10}
	if err := worker.Submit(ctx, run, &engine.Permits{Session: 5}); err != nil {
		return err
	}
	lease, err := worker.Start(ctx, run.ID)
	if err != nil {
		return err
	}
	fmt.Println("attempt", lease.Run().Attempt)
	return lease.Append(ctx, 0, []byte("2 3 5 7"))
}

// recoverWork takes over what the first worker left, and starts it again.
func recoverWork(ctx context.Context, dir string) error {
	store, err := sqlite.Open(ctx, dir, sqlite.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	worker, err := store.Join(ctx, engine.WorkerInfo{})
	if err != nil {
		return err
	}

	orphans, err := worker.Orphans(ctx, 10)
	if err != nil {
		return err
	}
	for _, run := range orphans {
		chunk, err := store.Tail(ctx, run.ID, 0, 100)
		if err != nil {
			return err
		}
		fmt.Printf("orphan %s: %s\n", run.ID, chunk.Data)
		if err := worker.Requeue(ctx, run.ID, run.Attempt); err != nil {
			return err
		}
	}
	claimed, err := worker.Claim(ctx, 10, engine.Permits{Session: 5})
	if err != nil {
		return err
	}
	for _, run := range claimed {
		lease, err := worker.Start(ctx, run.ID)
		if err != nil {
			return err
		}
		fmt.Println("attempt", lease.Run().Attempt)
	}
	return nil
}
