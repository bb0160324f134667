package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) compile() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compile",
		Short: "Compile all plugins now, so that no first call has to",
		Long: `Compile all plugins now and keep what comes of it in the data folder, where every
later call finds it. Nobody has to: the first call of a plugin does the same.

Exit code 1 says that some plugin does not compile, or that something else is
wrong with the plugins: one cannot be loaded, a folder cannot be read.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.compileAll(cmd) },
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// compiled is what compile --json prints.
type compiled struct {
	Plugins  []string      `json:"plugins"` // files of those that are compiled
	Problems []fileProblem `json:"problems"`
}

func (a *app) compileAll(cmd *cobra.Command) error {
	s, done, err := a.open(cmd.Context(), nil)
	if err != nil {
		return err
	}
	defer done()
	files := []string{}
	progress := newBar(a.err)
	err = s.Compile(cmd.Context(), func(done, total int, file string, err error) {
		if err == nil {
			files = append(files, file)
		}
		progress.set(float64(done), float64(total), file)
	})
	progress.clear()
	if cmd.Context().Err() != nil {
		return err
	}
	problems := s.Problems() // with what does not compile
	if a.json {
		a.printJSON(compiled{files, problemsOf(problems)})
	} else {
		a.tellProblems(problems)
		a.printf("%d of %d plugins are compiled\n", len(files), len(s.Plugins()))
	}
	if len(problems) > 0 {
		return &reportedError{errors.New(plural(len(problems), "problem"))}
	}
	return nil
}
