package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/wire"
)

func compileCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compile",
		Short: "Compile all plugins now",
		Long: `Compile all plugins now, and keep the compiled code in the data folder for later
calls. Otherwise the first call of a plugin compiles it.

Exit code 1 means that a plugin does not compile or cannot be loaded, or that a
folder cannot be read.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.compileAll(cmd.Context()) },
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// compiled is what compile --json prints.
type compiled struct {
	Plugins  []string           `json:"plugins"` // files of those that are compiled
	Problems []wire.FileProblem `json:"problems"`
}

func (a *app) compileAll(ctx context.Context) error {
	s, done, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	defer done()

	files, all := []string{}, 0
	progress := newBar(a.err)
	err = s.Compile(ctx, func(done, total int, file string, err error) {
		if all = total; err == nil {
			files = append(files, file)
		}
		progress.set(float64(done), float64(total), file)
	})
	progress.clear()
	if ctx.Err() != nil {
		return err
	}

	problems := fileProblems(s.Problems()) // including plugins that do not compile
	if a.json {
		a.printJSON(compiled{files, problems})
	} else {
		a.warnOf(problems)
		a.printf("%d of %d plugins are compiled\n", len(files), all)
	}
	if len(problems) > 0 {
		return &reportedError{errors.New(plural(len(problems), "problem"))}
	}
	return nil
}
