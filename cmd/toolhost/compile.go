package main

import (
	"context"
	"errors"
	"os"

	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/starter"
	"github.com/toolhost/toolhost/examples/demo"
	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
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

// compileOutput is the output of compile --json.
type compileOutput struct {
	Plugins  []string           `json:"plugins"` // files of the compiled plugins
	Problems []wire.FileProblem `json:"problems"`
}

func (a *app) compileAll(ctx context.Context) error {
	if _, err := a.config.cacheDir(); err != nil { // nothing would be kept
		return err
	}
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
	return a.answer(compileOutput{files, problems}, failedBy(problems), func() {
		a.warnOf(problems)
		a.printf("%d of %d plugins are compiled\n", len(files), all)
	})
}

func demoCommand(a *app) *cobra.Command {
	cluster := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play an agent session on the bundled example plugins, built from source",
		Long: `Play an agent session on the bundled example plugins, built from source. With
--cluster, three hosts that share a PostgreSQL database play it behind a balancer, and
one of them is killed: on a server of its own, or on the database that TOOLHOST_ENGINE
names.`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) { // an ignored configuration does not matter here
			a.flags = cmd.Flags()
			a.config, err = loadConfig(a.flags, a.environ)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cluster {
				return playCluster(cmd.Context(), a)
			}
			return playDemo(cmd.Context(), a)
		},
	}
	cmd.Flags().BoolVar(&cluster, "cluster", false, "play with three hosts, and kill one; needs PostgreSQL")
	return cmd
}

// playDemo builds the plugins for the demo, opens them, and plays the session.
func playDemo(ctx context.Context, a *app) error {
	cache, err := a.config.cacheDir()
	if err != nil {
		return err
	}

	a.notef("The demo builds and compiles its plugins first. That takes a minute or two, the first time.")
	cfg := host.Config{CacheDir: cache, Compiler: host.ThisProgram()}
	progress := newBar(a.err)
	defer progress.clear()
	dist, err := pluginbuild.Examples(ctx, cfg, "", demo.Plugins, func(name string, done, total int) {
		if progress.width == 0 {
			a.notef("building example plugin %s (%d of %d)", name, done+1, total)
		}
		progress.set(float64(done), float64(total), "building example plugin "+name)
	})
	if errors.Is(err, pluginbuild.ErrNoClone) {
		return &usageError{err, "git clone the project and run it there"}
	}
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "toolhost-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	work, served := filepath.Join(temp, "work"), filepath.Join(temp, "plugins")
	if err := buildDemo(ctx, a, work, served, progress); err != nil {
		return err
	}
	if err := copyExamples(dist, served, demo.Plugins); err != nil {
		return err
	}

	s, err := server.Open(ctx, server.Config{
		Folders:  []plugins.Folder{plugins.Dir(served), {Path: "starter", FS: starter.FS(demo.Starter), Pack: true}},
		CacheDir: cache, Logger: a.logger(), Grants: demo.Grants(work),
		Limits: server.Limits{Background: time.Hour}, // enough for any machine
	})
	if err != nil {
		return err
	}
	defer a.closeService(ctx, s)
	if err := compileFirst(ctx, s, progress); err != nil {
		return err
	}
	return demo.Play(ctx, s, a.printf)
}

// copyExamples copies the named plugins from dist, which contains others too if all
// examples have been built. One of those could have the same name as a plugin that the
// demo expects to be in the starter pack.
func copyExamples(dist, to string, names []string) error {
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dist, name+".wasm"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name+".wasm"), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// buildDemo creates the working folder of the demo, and a folder with the plugins built
// from its projects.
func buildDemo(ctx context.Context, a *app, work, dist string, progress *bar) error {
	for _, dir := range []string{work, dist} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}

	clone, err := pluginbuild.Clone()
	if err != nil {
		return err
	}
	for i, project := range demo.Projects {
		dir := filepath.Join(clone, filepath.FromSlash(project))
		if progress.width == 0 {
			a.notef("building %s (%d of %d)", project, i+1, len(demo.Projects))
		}
		progress.set(float64(i), float64(len(demo.Projects)), "building "+project)
		if _, err := makePlugin(ctx, a, dir, filepath.Join(dist, filepath.Base(dir)+".wasm")); err != nil {
			return err
		}
	}
	return nil
}

// compileFirst compiles all plugins in advance, so that the times shown in the session do
// not include compiling. A plugin that does not compile is reported when it is called.
func compileFirst(ctx context.Context, s *server.Service, progress *bar) error {
	defer progress.clear()
	return s.Compile(ctx, func(done, total int, file string, _ error) {
		progress.set(float64(done), float64(total), "compiling "+file)
	})
}
