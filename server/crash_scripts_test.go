package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	scriptsFolder = "TOOLHOST_SCRIPTS_FOLDER" // set: this process is a host
	scriptsKilled = 6
	scriptSteps   = 30
	waitsName     = "waits" // of the program that waits some seventy times
)

// killedScript calls a tool that must not be called twice, and others, in 30 steps, and
// tells of each how it ended.
const killedScript = `
	const ends = [];
	for (let step = 0; step < 30; step++) {
		console.log("step", step);
		const [effect, seen, again] = await Promise.allSettled([
			tools.effect({name: NAME + "/" + step}), tools.look({name: NAME, step}), tools.again({name: NAME, step}), step % 10 === 5 ? sleep(600) : sleep(step % 3)]);
		if (seen.value !== step || again.value !== 2 * step) throw new Error("step " + step + ": " + seen.value + " " + again.value + " " + (seen.reason ?? again.reason));
		ends.push(effect.status === "fulfilled" ? effect.value : effect.reason.kind);
	}
	return ends`

// TestKilledScripts kills hosts whose scripts call tools. What is neither readonly nor
// idempotent is never done twice: its result arrives, or the script learns that it is not
// known. TOOLHOST_CRASH_KILLS says how often.
func TestKilledScripts(t *testing.T) {
	fulltest.Only(t, "kills processes")
	if os.Getenv(scriptsFolder) != "" {
		t.Skip("this is a host of the harness")
	}
	kills := 8
	if text := os.Getenv("TOOLHOST_CRASH_KILLS"); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	var all killedFigures
	for all.kills < kills {
		killScripts(t, kills, &all)
	}
	t.Logf("%d kills, %d attempts of %d runs; %d effects, %d ends lost with a host", all.kills, all.attempts, all.runs, all.effects, all.lost)
}

type killedFigures struct{ kills, attempts, runs, effects, lost int }

// killScripts kills hosts until their scripts have ended, or it has killed enough.
func killScripts(t *testing.T, kills int, all *killedFigures) {
	folder := t.TempDir()
	for last := false; !last; {
		cmd := exec.Command(os.Args[0], "-test.run=^TestScriptsHost$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), scriptsFolder+"="+folder)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		killing := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() != "ready" {
				fmt.Fprintln(t.Output(), lines.Text())
			} else if killing = all.kills < kills; killing {
				time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
				_ = cmd.Process.Kill()
			}
		}
		if last = cmd.Wait() == nil; !last {
			require.True(t, killing, "a host failed by itself")
			all.kills++
		}
	}

	data, err := os.ReadFile(filepath.Join(folder, "effects"))
	require.NoError(t, err)
	executed := map[string]int{}
	for line := range strings.Lines(string(data)) {
		executed[strings.TrimSpace(line)]++
	}
	for name, n := range executed {
		require.Equal(t, 1, n, "done twice: %s", name)
	}

	data, err = os.ReadFile(filepath.Join(folder, "ends"))
	require.NoError(t, err)
	var runs map[string]wire.Run
	require.NoError(t, json.Unmarshal(data, &runs))
	require.Len(t, runs, scriptsKilled)
	for name, run := range runs {
		require.Equal(t, wire.StatusSucceeded, run.Status, "%s: %+v", name, run.Error)
		all.attempts += run.Attempt
		if name == waitsName {
			continue
		}
		var ends []string
		require.NoError(t, json.Unmarshal(run.Result, &ends))
		require.Len(t, ends, scriptSteps)
		for step, end := range ends {
			switch step := fmt.Sprintf("%s/%d", name, step); end {
			case "done " + step:
				require.Equal(t, 1, executed[step], step)
			case "lost":
				all.lost++
			default:
				require.Fail(t, "an end that no host gave", "%s: %s", step, end)
			}
		}
	}
	all.runs += len(runs)
	all.effects += len(executed)
}

// TestScriptsHost is the process that is killed. It begins the scripts, or continues them,
// and ends when all of them have ended.
func TestScriptsHost(t *testing.T) {
	folder := os.Getenv(scriptsFolder)
	if folder == "" {
		t.Skip("a host of TestKilledScripts")
	}
	effects, err := os.OpenFile(filepath.Join(folder, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	type named struct {
		Name string `json:"name"`
		Step int    `json:"step,omitempty"`
	}
	tools := []gotool.Tool{
		{Name: "effect", Description: "Has an effect.", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in named) (string, error) {
			_, err := fmt.Fprintln(effects, in.Name)
			return "done " + in.Name, err
		})},
		{Name: "look", Description: "Looks.", Hints: abi.Hints{Readonly: true}, Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in named) (int, error) {
			return in.Step, nil
		})},
		{Name: "again", Description: "May be called again.", Hints: abi.Hints{Idempotent: true}, Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in named) (int, error) {
			return 2 * in.Step, nil
		})},
	}

	waits, err := os.ReadFile("../host/testdata/waits.js")
	require.NoError(t, err)
	runs.SuspendAfter = 0 // at each wait
	s := openScripts(t, Config{Tools: tools, DataDir: filepath.Join(folder, "data"), Runs: RunsConfig{Attempts: 1000, PerSession: 100, PerHost: 100}})
	fmt.Println("ready")
	runs, whole := map[string]wire.Run{}, map[string]string{}
	for i := range scriptsKilled {
		name, text := fmt.Sprint("script", i), string(waits)
		if i == 0 {
			name = waitsName
		} else {
			text = strings.ReplaceAll(killedScript, "NAME", strconv.Quote(name))
			for step := range scriptSteps {
				whole[name] += fmt.Sprintf("step %d\n", step)
			}
		}
		run, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "exec", Args: code(text), IdempotencyKey: name})
		require.NoError(t, err)
		runs[name] = run
	}
	for name, run := range runs {
		for !run.Done {
			found, err := s.Session(alice).Check(t.Context(), CheckRequest{IDs: []string{run.TaskID}, Wait: time.Minute})
			if errors.Is(err, context.Canceled) {
				return
			}
			require.NoError(t, err)
			run = found.Runs[0]
		}
		found, err := s.Session(alice).Check(t.Context(), CheckRequest{IDs: []string{run.TaskID}})
		require.NoError(t, err)
		runs[name] = found.Runs[0]
		require.Equal(t, wire.StatusSucceeded, runs[name].Status, "%s, attempt %d: %+v", name, runs[name].Attempt, runs[name].Error)

		if name != waitsName {
			require.Equal(t, whole[name], s.artifact(alice, run.TaskID, wire.OutputLog))
		} else {
			var output bytes.Buffer
			r, err := s.Service.Call(t.Context(), Request{Tool: "exec", Args: code(string(waits)), Stdout: &output, Stderr: &output})
			require.NoError(t, err)
			require.Equal(t, unrandom(t, r.Value), unrandom(t, runs[name].Result))
			require.Equal(t, unticked(output.String()), unticked(s.artifact(alice, run.TaskID, wire.OutputLog)))
		}
	}
	data, err := json.Marshal(runs)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "ends"), data, 0o600))
}

// unrandom is the result of the program that waits without what is random.
func unrandom(t *testing.T, result json.RawMessage) map[string]any {
	t.Helper()
	var value map[string]any
	require.NoError(t, json.Unmarshal(result, &value), "%s", result)
	delete(value, "random")
	return value
}

// unticked is its output without the line of how often a timer fired, which depends on how
// much time has passed.
func unticked(output string) []string {
	return slices.DeleteFunc(strings.Split(output, "\n"), func(line string) bool { return strings.HasPrefix(line, "ticks ") })
}
