package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/plugins"
)

func benchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench FILE",
		Short: "Measure the examples of a plugin's manifest",
		Long: `Call each example of a plugin's manifest that has a result, one call after the other and
in the conditions of toolhost test, and show how long calls take, what they cost, and how
both compare with the last time that they were measured.

The first call is the one that starts the plugin up; the times are of the later ones. They
are those of the machine as it is: compare runs on a quiet one. Fuel is the same on every
machine. The figures are kept in the data folder, by the name of the plugin.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := cmd.Flags().GetInt("calls")
			if err == nil && calls < 1 {
				err = &usageError{errors.New("--calls: expected at least 1"), ""}
			}
			if err != nil {
				return err
			}
			return benchFile(cmd.Context(), a, args[0], calls)
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().Int("calls", 200, "`number` of calls of each example")
	return cmd
}

// measuredPlugin is the output of bench, and also the form in which it is stored.
type measuredPlugin struct {
	Plugin   string            `json:"plugin"`
	Version  string            `json:"version"`
	Digest   string            `json:"sha256"`
	Examples []measuredExample `json:"examples"`
}

// measuredExample holds the times and costs of the calls of one example.
type measuredExample struct {
	Tool   string           `json:"tool"`
	Name   string           `json:"name,omitempty"`
	Args   json.RawMessage  `json:"args"`
	Calls  int              `json:"calls"`
	First  time.Duration    `json:"first_ns"`    // time of the first call, which is not counted in Calls
	Median time.Duration    `json:"median_ns"`   // median time of a call, measured in the host
	P90    time.Duration    `json:"p90_ns"`      // 90th percentile of the time
	P99    time.Duration    `json:"p99_ns"`      // 99th percentile of the time
	CPU    time.Duration    `json:"cpu_ns"`      // median processor time
	Fuel   int64            `json:"fuel"`        // median fuel
	Memory int64            `json:"memory_peak"` // peak memory in bytes, the maximum of all calls
	Last   *measuredExample `json:"last,omitempty"`
}

// same reports whether two measurements are of the same example.
func (m measuredExample) same(o measuredExample) bool {
	return m.Tool == o.Tool && m.Name == o.Name && sameValue(m.Args, o.Args)
}

func benchFile(ctx context.Context, a *app, name string, calls int) error {
	r, done, err := rehearse(ctx, a, name)
	if err != nil {
		return err
	}
	defer done()
	digest, err := r.plugin.Digest()
	if err != nil {
		return err
	}

	out := measuredPlugin{Plugin: r.plugin.Manifest.Name, Version: r.plugin.Manifest.Version, Digest: digest, Examples: []measuredExample{}}
	progress := newBar(a.err)
	for _, tool := range r.plugin.Tools {
		for _, one := range tool.Examples {
			if one.Error != "" {
				continue
			}
			m, err := r.measure(ctx, tool, one, calls, func(n int) { progress.set(float64(n), float64(calls), tool.Name) })
			if err != nil {
				progress.clear()
				return err
			}
			out.Examples = append(out.Examples, m)
		}
	}
	progress.clear()
	if len(out.Examples) == 0 {
		return &hintError{errors.New("no tool has an example with a result, so nothing was measured"), "add examples to the tools of the manifest"}
	}

	file := filepath.Join(a.config.data, "bench", out.Plugin+".json")
	last, err := lastMeasured(file)
	if err != nil {
		a.notef("toolhost: the figures of the last time are not compared: %v", err)
	}
	if err := out.keep(file); err != nil {
		a.notef("toolhost: the figures are not kept: %v", err)
	}
	for i := range out.Examples {
		one := &out.Examples[i]
		if n := slices.IndexFunc(last.Examples, one.same); n >= 0 {
			one.Last = &last.Examples[n]
		}
	}
	return a.answer(out, nil, func() { out.print(a) })
}

// lastMeasured reads the figures from the last measurement, if there was one.
func lastMeasured(file string) (last measuredPlugin, err error) {
	data, err := owned.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &last)
	}
	return last, err
}

func (m measuredPlugin) keep(file string) error {
	data, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return err
	}
	return owned.WriteFile(file, data)
}

// measure calls an example many times. It resets the state after each call that may
// have changed something.
func (r *rehearsal) measure(ctx context.Context, tool *plugins.Tool, one abi.Example, calls int, done func(n int)) (measuredExample, error) {
	m := measuredExample{Tool: tool.Name, Name: one.Name, Args: one.Args, Calls: calls}
	var walls, cpus []time.Duration
	var fuels []int64
	session := ""
	for n := range calls + 1 {
		if n == 0 || !tool.Hints.Readonly {
			var err error
			if session, err = r.reset(); err != nil {
				return m, err
			}
		}
		result, err := r.call(ctx, session, tool, one.Args)
		if ctx.Err() != nil {
			return m, err
		}
		if problem := differs(one, result, err); problem != "" {
			return m, &hintError{fmt.Errorf("%s %s: call %d: %s", tool.Name, brief(one.Args), n+1, problem+r.unfilled()), "toolhost test runs the examples as tests"}
		}

		u := result.Usage
		m.Memory = max(m.Memory, u.MemoryPeak)
		if wall := u.Wall - u.Wait; n == 0 {
			m.First = wall
		} else {
			walls, cpus, fuels = append(walls, wall), append(cpus, u.CPU), append(fuels, u.Fuel)
		}
		done(n)
	}

	m.Median, m.P90, m.P99 = percentile(walls, 0.5), percentile(walls, 0.9), percentile(walls, 0.99)
	m.CPU, m.Fuel = percentile(cpus, 0.5), percentile(fuels, 0.5)
	return m, nil
}

// percentile returns the smallest value that at least the fraction part of all values
// do not exceed.
func percentile[T cmp.Ordered](all []T, part float64) T {
	slices.Sort(all)
	return all[min(len(all)-1, int(part*float64(len(all))))]
}

func (m measuredPlugin) print(a *app) {
	rows := [][]string{{"TOOL", "ARGUMENTS", "FIRST", "MEDIAN", "P90", "P99", "CPU", "FUEL", "MEMORY"}}
	for _, e := range m.Examples {
		median, fuel := inShort(e.Median), count(e.Fuel)
		if e.Last != nil {
			median, fuel = median+ratio(e.Median, e.Last.Median), fuel+ratio(e.Fuel, e.Last.Fuel)
		}
		title := example{Name: e.Name, Args: e.Args}.title()
		rows = append(rows, []string{e.Tool, title, inShort(e.First), median, inShort(e.P90), inShort(e.P99), inShort(e.CPU), fuel, human.Bytes(e.Memory)})
	}
	a.table(rows)
	a.printf("\n%s %s: %s of each example\n", m.Plugin, m.Version, plural(m.Examples[0].Calls, "call"))
}

// inShort formats a duration with three digits.
func inShort(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// ratio compares a figure with the one from the last measurement.
func ratio[T int64 | time.Duration](now, last T) string {
	if last <= 0 {
		return ""
	}
	return fmt.Sprintf(" (×%.2f)", float64(now)/float64(last))
}
