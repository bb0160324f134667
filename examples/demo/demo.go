// Package demo plays an agent session with the example plugins: it calls tools written in
// Go, JavaScript and Python that work on a folder, runs one tool for a long time in the
// background, stops a run, and makes a call without enough fuel. The command toolhost demo
// plays the session.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// Plugins lists the example plugins that the session calls.
var Plugins = []string{"wordcount", "primes", "spin"}

// Projects lists folders of the clone in which toolhost build makes plugins that the
// session calls too. Building them requires no network access, and no toolchain except
// Go's.
var Projects = []string{"examples/python/tables", "examples/python/snippet", "examples/tools/regex"}

// Starter lists the plugins of the starter pack that the session calls.
var Starter = []string{"files"}

// Grants returns the grants for the session's plugins, which give access to the folder
// work.
func Grants(work string) map[string]plugins.Grant {
	mount := func(path string, mode abi.FileMode) plugins.Grant {
		return plugins.Grant{Files: []host.Mount{{Dir: work, Path: path, Mode: mode}}}
	}
	return map[string]plugins.Grant{"files": mount("/work", abi.FileWrite), "regex": mount("/work", abi.FileWrite), "tables": mount("/data", abi.FileRead), "python": mount("/data", abi.FileRead)}
}

// session plays an agent: it calls tools as a model would, and fails if an answer is wrong.
type session struct {
	service *server.Service
	printf  func(format string, args ...any)
}

// Play plays the session on a service that has the plugins, and prints what happens.
func Play(ctx context.Context, service *server.Service, printf func(format string, args ...any)) error {
	s := &session{service, printf}
	s.printf("An agent session on real WebAssembly plugins. Each call has a sandbox of its own.\n")
	for _, step := range []func(context.Context) error{s.callTool, s.workInFolder, s.outOfFolder, s.spawnAndCheck, s.stopInLoop, s.outOfFuel} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	s.printf("\nDone. To try it yourself, install the command with go install ./cmd/toolhost. Then: toolhost list · toolhost call TOOL · toolhost mcp\n")
	return nil
}

func (s *session) say(format string, args ...any) { s.printf("\n# "+format+"\n", args...) }

// maxCalls is the maximum number of times that a call is repeated while its answer is not
// enough.
const maxCalls = 600

// object holds the arguments of a call.
type object = map[string]any

// call calls a tool until enough accepts the answer, and prints the call and the last
// answer. If enough is nil, any answer is accepted.
func (s *session) call(ctx context.Context, tool string, args object, limits server.Limits, enough func(runState) bool) (abi.Result, error) {
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
	var r abi.Result
	for range maxCalls {
		r, err = s.service.Call(ctx, server.Request{Session: "demo", Tool: tool, Args: raw, Limits: limits})
		var state runState
		if err != nil || r.Kind != abi.Success || enough == nil || json.Unmarshal(r.Value, &state) != nil || enough(state) {
			break
		}
	}

	answer := string(r.Value)
	if r.Kind != abi.Success {
		answer = fmt.Sprintf("%s: %s", r.Kind, r.Error)
	}
	used := fmt.Sprint(time.Since(started).Round(10 * time.Microsecond))
	if r.Usage.Fuel > 0 {
		used += fmt.Sprintf(", fuel %d, memory %s", r.Usage.Fuel, human.Bytes(r.Usage.MemoryPeak))
	}
	s.printf("< %s\n  (%s)\n", answer, used)
	return r, err
}

// read is like call, but for a tool that must succeed. It decodes the answer.
func (s *session) read(ctx context.Context, tool string, args object, into any, enough func(runState) bool) error {
	r, err := s.call(ctx, tool, args, server.Limits{}, enough)
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
	if err := s.read(ctx, "wordcount", object{"text": "to be or not to be"}, &counts, nil); err != nil {
		return err
	}
	if counts.Words != 6 {
		return fmt.Errorf("wordcount counted %d words, expected 6", counts.Words)
	}
	return nil
}

const sales = "day,product,amount\n2026-01-02,tea,12.5\n2026-01-02,coffee,30\n2026-01-03,tea,7\n"

func (s *session) workInFolder(ctx context.Context) error {
	s.say("One in JavaScript, which comes with Toolhost, writes in the folder that it was granted.")
	var wrote struct{ Bytes int }
	if err := s.read(ctx, "write_file", object{"path": "sales.csv", "content": sales}, &wrote, nil); err != nil {
		return err
	}
	if wrote.Bytes != len(sales) {
		return fmt.Errorf("write_file wrote %d bytes, expected %d", wrote.Bytes, len(sales))
	}

	s.say("One in Python reads there, and a snippet that the agent has just written does.")
	var table struct{ Rows [][]any }
	if err := s.read(ctx, "tables_query", object{
		"file": "sales.csv", "group_by": []string{"product"}, "aggregate": []object{{"function": "sum", "column": "amount"}}, "sort": []string{"product"},
	}, &table, nil); err != nil {
		return err
	}
	if got := fmt.Sprint(table.Rows); got != "[[coffee 30] [tea 19.5]]" {
		return fmt.Errorf("tables_query answered %s, expected coffee 30 and tea 19.5", got)
	}
	var total float64
	code := "import csv\nsum(float(row['amount']) for row in csv.DictReader(open('/data/sales.csv')))"
	if err := s.read(ctx, "python", object{"code": code}, &total, nil); err != nil {
		return err
	}
	if total != 49.5 {
		return fmt.Errorf("python added up %v, expected 49.5", total)
	}

	s.say("One in Go searches there.")
	var found struct{ Matches []struct{ Line int } }
	if err := s.read(ctx, "regex_search", object{"pattern": "^.*,tea,"}, &found, nil); err != nil {
		return err
	}
	if len(found.Matches) != 2 {
		return fmt.Errorf("regex_search found %d lines, expected 2", len(found.Matches))
	}
	return nil
}

func (s *session) outOfFolder(ctx context.Context) error {
	s.say("Nothing else of the machine is there for them.")
	r, err := s.call(ctx, "python", object{"code": "open('/etc/passwd').read()"}, server.Limits{}, nil)
	if err != nil || r.Kind != abi.ToolError || !strings.Contains(r.Error, "/etc/passwd") {
		return fmt.Errorf("python read a file outside of its folder: %s, %w", r.Kind, err)
	}
	return nil
}

// runState is the part of a report that the demo checks.
type runState struct {
	TaskID   string `json:"task_id"`
	Status   string `json:"status"`
	Done     bool   `json:"done"`
	Stopping bool   `json:"stopping"`
	Output   *struct {
		Cursor string `json:"cursor"`
	} `json:"output"`
	Progress *struct{ Done float64 } `json:"progress"`
	Result   *struct{ Count int }    `json:"result"`
}

// moves reports whether a run has made progress.
func (r runState) moves() bool { return r.Done || r.Progress != nil && r.Progress.Done > 0 }

// spawnAndCheck repeats its calls, because each answer may take a while on a busy machine.
func (s *session) spawnAndCheck(ctx context.Context) error {
	s.say("A long one goes to the background; the agent has its id at once.")
	var run runState
	if err := s.read(ctx, server.SpawnBackground, object{"tool": "primes", "args": object{"limit": 200_000_000}}, &run, nil); err != nil {
		return err
	}

	s.say("It is checked while it runs: progress and live output, each byte once.")
	id := run.TaskID
	if err := s.read(ctx, server.CheckBackground, object{"task_id": id, "wait_seconds": 1, "max_chars": 200}, &run, runState.moves); err != nil {
		return err
	}
	if !run.moves() {
		return errors.New("primes runs without progress")
	}

	s.say("One long wait costs fewer tokens than many short ones.")
	args := object{"task_id": id, "wait_seconds": 540, "max_chars": 120}
	if run.Output != nil {
		args["cursor"] = run.Output.Cursor
	}
	if err := s.read(ctx, server.CheckBackground, args, &run, func(r runState) bool { return r.Done }); err != nil {
		return err
	}
	if run.Result == nil || run.Result.Count != 11_078_937 {
		return fmt.Errorf("primes is %s without the 11078937 primes below 200 million", run.Status)
	}
	return nil
}

func (s *session) stopInLoop(ctx context.Context) error {
	s.say("One that loops forever is stopped in the middle.")
	var run runState
	if err := s.read(ctx, server.SpawnBackground, object{"tool": "spin", "args": object{}}, &run, nil); err != nil {
		return err
	}
	id := run.TaskID
	begun := func(r runState) bool { return r.Status != "queued" }
	if err := s.read(ctx, server.CheckBackground, object{"task_id": id, "wait_seconds": 1, "max_chars": 0}, &run, begun); err != nil {
		return err
	}
	if run.Status != "running" {
		return fmt.Errorf("spin is %s, expected running", run.Status)
	}

	ended := func(r runState) bool { return !r.Stopping }
	if err := s.read(ctx, server.StopBackground, object{"task_id": id, "force": true, "reason": "no use"}, &run, ended); err != nil {
		return err
	}
	if run.Status != "canceled" {
		return fmt.Errorf("spin is %s after the stop, expected canceled", run.Status)
	}
	return nil
}

func (s *session) outOfFuel(ctx context.Context) error {
	s.say("Another one gets exactly the fuel it is given, to the unit.")
	r, err := s.call(ctx, "spin", object{}, server.Limits{Fuel: 50_000_000}, nil)
	if !errors.Is(err, host.ErrFuel) || r.Usage.Fuel != 50_000_000 {
		return fmt.Errorf("spin ended as %s with %d units used, expected to run out of 50000000: %w", r.Kind, r.Usage.Fuel, err)
	}
	return nil
}
