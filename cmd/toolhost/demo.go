package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/internal/pluginbuild"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// demoPlugins are the examples the demo calls.
var demoPlugins = []string{"wordcount", "primes", "spin"}

func demoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Play an agent session on the bundled example plugins, built from source",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			root, err := moduleRoot()
			if err != nil {
				return err
			}
			cache, err := a.cacheDir()
			if err != nil {
				return err
			}
			dist := filepath.Join(root, "examples", "plugins", "dist")
			if err := a.buildMissing(ctx, root, dist, cache); err != nil {
				return err
			}
			s, err := server.Open(ctx, server.Config{
				Folders: []plugins.Folder{plugins.Dir(dist)}, CacheDir: cache, Logger: a.logger(),
				Limits: server.Limits{Background: time.Hour}, // enough for any machine
			})
			if err != nil {
				return err
			}
			defer a.closeService(ctx, s)
			if err := a.compileFirst(ctx, s); err != nil {
				return err
			}
			return (&session{app: a, service: s}).play(ctx)
		},
	}
}

// moduleRoot is the folder of this project's sources: the examples are built
// from them.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	module := regexp.MustCompile(`(?m)^module github\.com/toolhost/toolhost$`)
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && module.Match(data) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", &usageError{errors.New("the demo builds the example plugins from source, and this is not a clone of the project"),
				"git clone the project and run it there"}
		}
		dir = parent
	}
}

// buildMissing builds the plugins of the demo that are missing or older than
// their sources.
func (a *app) buildMissing(ctx context.Context, root, dist, cache string) error {
	var stale []pluginbuild.Source
	for _, name := range demoPlugins {
		s := pluginbuild.Source{Name: name, Dir: filepath.Join(root, "examples", "plugins", name)}
		if s.Stale(dist, filepath.Join(root, "guest"), filepath.Join(root, "abi")) {
			stale = append(stale, s)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	h, err := host.New(ctx, host.Config{CacheDir: cache, Compiler: host.ThisProgram()})
	if err != nil {
		return err
	}
	defer h.Close(ctx)
	progress := newBar(a.err)
	defer progress.clear()
	for i, s := range stale {
		if progress.width == 0 {
			a.notef("building example plugin %s (%d of %d)", s.Name, i+1, len(stale))
		}
		progress.set(float64(i), float64(len(stale)), "building example plugin "+s.Name)
		if err := pluginbuild.Build(ctx, h, s, dist); err != nil {
			return err
		}
	}
	return nil
}

// compileFirst compiles what the session calls, so that none of its times has
// that in it. What does not compile is told when it is called.
func (a *app) compileFirst(ctx context.Context, s *server.Service) error {
	progress := newBar(a.err)
	defer progress.clear()
	return s.Compile(ctx, func(done, total int, file string, _ error) {
		progress.set(float64(done), float64(total), "compiling "+file)
	})
}

// session plays an agent: it calls tools as a model would, and fails where an
// answer is not what it has to be.
type session struct {
	*app
	service *server.Service
}

func (s *session) play(ctx context.Context) error {
	var err error
	step := func(f func(context.Context) error) {
		if err == nil {
			err = f(ctx)
		}
	}
	s.printf("An agent session on real WebAssembly plugins. Each call has a sandbox of its own.\n")
	step(s.callTool)
	step(s.spawnAndCheck)
	step(s.stopInLoop)
	step(s.outOfFuel)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	s.printf("\nDone. Try it: toolhost list · toolhost call TOOL · toolhost mcp\n")
	return nil
}

func (s *session) say(format string, args ...any) { s.printf("\n# "+format+"\n", args...) }

// ask calls a tool and prints the call and the answer.
func (s *session) ask(ctx context.Context, tool string, args any, limits server.Limits) (abi.Result, error) {
	return s.askUntil(ctx, tool, args, limits, func(abi.Result) bool { return true })
}

// maxAsks is how often a call is repeated whose answer is not yet enough.
const maxAsks = 600

// askUntil calls a tool until its answer is enough, and prints the call and the
// last answer.
func (s *session) askUntil(ctx context.Context, tool string, args any, limits server.Limits, enough func(abi.Result) bool) (abi.Result, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return abi.Result{}, err
	}
	flags := ""
	if limits.Fuel != 0 {
		flags = fmt.Sprintf("  --fuel %d", limits.Fuel)
	}
	s.printf("> %s %s%s\n", tool, raw, flags)
	started := time.Now()
	req := server.Request{Session: "demo", Tool: tool, Args: raw, Limits: limits}
	r, err := s.service.Call(ctx, req)
	for n := 1; err == nil && r.Kind == abi.Success && !enough(r) && n < maxAsks; n++ {
		r, err = s.service.Call(ctx, req)
	}
	took := time.Since(started).Round(10 * time.Microsecond)
	answer := string(r.Value)
	if r.Kind != abi.Success {
		answer = fmt.Sprintf("%s: %s", r.Kind, r.Error)
	}
	s.printf("< %s\n", answer)
	if r.Usage.Fuel > 0 {
		s.printf("  (%v, fuel %d, memory %s)\n", took, r.Usage.Fuel, human.Bytes(r.Usage.MemoryPeak))
	} else {
		s.printf("  (%v)\n", took)
	}
	return r, err
}

// read calls a tool that has to succeed and decodes its answer.
func (s *session) read(ctx context.Context, tool string, args, into any) error {
	return s.readUntil(ctx, tool, args, into, func(abi.Result) bool { return true })
}

// readUntil is read of a call that is repeated until its answer is enough.
func (s *session) readUntil(ctx context.Context, tool string, args, into any, enough func(abi.Result) bool) error {
	r, err := s.askUntil(ctx, tool, args, server.Limits{}, enough)
	if err != nil {
		return err
	}
	if r.Kind != abi.Success {
		return fmt.Errorf("%s answered %s: %s", tool, r.Kind, r.Error)
	}
	return json.Unmarshal(r.Value, into)
}

func (s *session) callTool(ctx context.Context) error {
	s.say("A tool is called.")
	var counts struct{ Words int }
	if err := s.read(ctx, "wordcount", map[string]any{"text": "to be or not to be"}, &counts); err != nil {
		return err
	}
	if counts.Words != 6 {
		return fmt.Errorf("wordcount counted %d words, expected 6", counts.Words)
	}
	return nil
}

// runState is the part of a report the demo looks at.
type runState struct {
	TaskID string `json:"task_id"`
	Status string `json:"status"`
	Done   bool   `json:"done"`
	Output *struct {
		Text   string `json:"text"`
		Cursor string `json:"cursor"`
	} `json:"output"`
	Progress *struct{ Done, Total float64 } `json:"progress"`
	Result   *struct{ Count int }           `json:"result"`
}

// moves reports whether a run has got anywhere.
func (r *runState) moves() bool { return r.Done || r.Progress != nil && r.Progress.Done > 0 }

func (s *session) spawnAndCheck(ctx context.Context) error {
	s.say("A long one goes to the background; the agent has its id at once.")
	var run runState
	err := s.read(ctx, server.SpawnBackground, map[string]any{"tool": "primes", "args": map[string]any{"limit": 200_000_000}}, &run)
	if err != nil {
		return err
	}
	s.say("It is checked while it runs: progress and live output, each byte once.")
	id := run.TaskID
	moves := func(r abi.Result) bool { // on a busy machine it may take a while to begin
		var run runState
		return json.Unmarshal(r.Value, &run) != nil || run.moves()
	}
	if err := s.readUntil(ctx, server.CheckBackground, map[string]any{"task_id": id, "wait_seconds": 1, "max_chars": 200}, &run, moves); err != nil {
		return err
	}
	if !run.moves() {
		return errors.New("primes runs and shows no progress")
	}
	s.say("One long wait costs fewer tokens than many short ones.")
	args := map[string]any{"task_id": id, "wait_seconds": 540, "max_chars": 120}
	if run.Output != nil {
		args["cursor"] = run.Output.Cursor
	}
	done := func(r abi.Result) bool {
		var run runState
		return json.Unmarshal(r.Value, &run) != nil || run.Done
	}
	if err := s.readUntil(ctx, server.CheckBackground, args, &run, done); err != nil {
		return err
	}
	if run.Result == nil || run.Result.Count != 11_078_937 {
		return fmt.Errorf("primes ended as %s without the 11078937 primes below 200 million", run.Status)
	}
	return nil
}

func (s *session) stopInLoop(ctx context.Context) error {
	s.say("One that loops for ever is stopped in mid-loop.")
	var run runState
	if err := s.read(ctx, server.SpawnBackground, map[string]any{"tool": "spin", "args": map[string]any{}}, &run); err != nil {
		return err
	}
	begun := func(r abi.Result) bool { // on a busy machine it may take a while, as its end may
		var run runState
		return json.Unmarshal(r.Value, &run) != nil || run.Status != string(background.StatusQueued)
	}
	if err := s.readUntil(ctx, server.CheckBackground, map[string]any{"task_id": run.TaskID, "wait_seconds": 1, "max_chars": 0}, &run, begun); err != nil {
		return err
	}
	if run.Status != "running" {
		return fmt.Errorf("spin is %s, expected running", run.Status)
	}
	stop := map[string]any{"task_id": run.TaskID, "force": true, "reason": "no use"}
	ended := func(r abi.Result) bool {
		var stopped background.Stopped
		return json.Unmarshal(r.Value, &stopped) != nil || !stopped.Stopping
	}
	if err := s.readUntil(ctx, server.StopBackground, stop, &run, ended); err != nil {
		return err
	}
	if run.Status != "canceled" {
		return fmt.Errorf("spin is %s after the stop, expected canceled", run.Status)
	}
	return nil
}

func (s *session) outOfFuel(ctx context.Context) error {
	s.say("Another one gets no more fuel than it is given, to the unit.")
	r, err := s.ask(ctx, "spin", map[string]any{}, server.Limits{Fuel: 50_000_000})
	if !errors.Is(err, host.ErrFuel) || r.Usage.Fuel != 50_000_000 {
		return fmt.Errorf("spin ended as %s with %d units used, expected an empty tank of 50000000: %w", r.Kind, r.Usage.Fuel, err)
	}
	return nil
}
