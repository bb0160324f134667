// Command generate builds all plugins below a folder: generate DIR OUT.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: generate DIR OUT")
	}
	h, err := host.New(ctx, host.Config{})
	if err != nil {
		return err
	}
	defer h.Close(ctx)
	sources, err := pluginbuild.Sources(args[0])
	if err != nil {
		return err
	}
	for i, s := range sources {
		fmt.Printf("%d/%d %s\n", i+1, len(sources), s.Name)
		if err := pluginbuild.Build(ctx, h, s, args[1]); err != nil {
			return err
		}
	}
	return nil
}
