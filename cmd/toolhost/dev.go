package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/watch"
)

func devCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "dev [FOLDER]",
		Short: "Build and test the plugin of a project after each change",
		Long: `Build the plugin of the project in a folder, or in this one, and test it as
toolhost test does, now and after each change of a file. What is printed begins with what
an agent sees of the tools. It ends with Ctrl-C.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return dev(cmd.Context(), a, dir)
		},
	}
}

// devPoll is the interval at which the files of a project are checked.
const devPoll = 200 * time.Millisecond

func dev(ctx context.Context, a *app, dir string) error {
	if _, err := languageOf(dir); err != nil {
		return err
	}
	ticker := time.NewTicker(devPoll)
	defer ticker.Stop()
	for seen := ""; ; {
		now, err := sourcesOf(dir)
		if err != nil {
			return err
		}
		if now != seen {
			seen = now
			if err := makeAndTest(ctx, a, dir); err != nil && ctx.Err() == nil {
				if _, reported := errors.AsType[*reportedError](err); !reported {
					a.fail(diagnose(ctx, err))
				}
			}
			if after, err := sourcesOf(dir); err == nil { // building may change the project's lock files
				seen = after
			}
			a.notef("toolhost: waiting for a change in %s", dir)
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// makeAndTest builds and tests the plugin of a project.
func makeAndTest(ctx context.Context, a *app, dir string) error {
	made, err := makePlugin(ctx, a, dir, "")
	if err != nil {
		return err
	}
	a.printf("\n%s\n", made.String())
	a.printAgentView(made.manifest)
	return testFile(ctx, a, made.File)
}

// printAgentView prints the definitions that an agent sees, which cost it tokens in every
// turn.
func (u *ui) printAgentView(m *abi.Manifest) {
	for _, t := range m.Tools {
		u.printf("\n%s: %s\n  %s\n", abi.AgentName(m.Name, t.Name), oneLine(t.Description), brief(t.InputSchema))
	}
	u.printf("\n")
}

// sourcesOf returns a text that changes whenever the files of a project change.
func sourcesOf(dir string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case errors.Is(err, fs.ErrNotExist): // just removed
			return nil
		case err != nil:
			return err
		case e.IsDir() && path != dir && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "target"):
			return fs.SkipDir
		case e.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".wasm"):
			return nil
		}
		watch.Describe(&b, path)
		return nil
	})
	return b.String(), err
}
