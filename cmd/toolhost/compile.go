package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) compile() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compile",
		Short: "Compile all plugins now, so that no first call has to",
		Long: `Compile all plugins now and keep what comes of it in the data folder, where every
later call finds it. Nobody has to: the first call of a plugin does the same.

Exit code 1 says that some plugin does not compile.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.compileAll(cmd) },
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// compiledPlugin is one plugin of compile --json.
type compiledPlugin struct {
	File  string `json:"file"`
	Error string `json:"error,omitempty"`
}

func (a *app) compileAll(cmd *cobra.Command) error {
	s, done, err := a.open(cmd.Context(), nil)
	if err != nil {
		return err
	}
	defer done()
	problems := s.Problems() // before: what does not compile becomes one
	seen := []compiledPlugin{}
	failed := 0
	progress := newBar(a.err)
	err = s.Compile(cmd.Context(), func(done, total int, file string, err error) {
		one := compiledPlugin{File: file}
		if err != nil {
			failed++
			one.Error = err.Error()
			progress.notef("problem: %v", err)
		}
		seen = append(seen, one)
		progress.set(float64(done), float64(total), file)
	})
	progress.clear()
	if cmd.Context().Err() != nil {
		return err
	}
	for _, p := range problems {
		a.notef("problem: %s", p)
	}
	if a.json {
		a.printJSON(map[string]any{"plugins": seen})
	} else {
		a.printf("%d of %d plugins are compiled\n", len(seen)-failed, len(seen))
	}
	if failed > 0 {
		return &reportedError{fmt.Errorf("%s not compiled", plural(failed, "plugin"))}
	}
	return nil
}
