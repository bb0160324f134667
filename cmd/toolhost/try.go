package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/plugins"
)

func testCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test FILE | PLUGIN",
		Short: "Run the examples of a plugin's manifest as tests",
		Long: `Run the examples of a plugin's manifest in the sandbox, under the limits of the
configuration, and compare what they come to: a result as JSON, an error by a part of
its text. A result has to fit the output schema. The plugin is a file, or the name of one
in a folder of the configuration.

An example of a tool that says idempotent is run twice: the second call may not fail, and
has to leave what the first has left. A tool that says readonly cannot write.

The plugin is granted the clock, randomness, stores that begin empty, and variables of
the environment, as far as it needs them. Each folder that it needs is a copy of that
below testdata, next to the file: for /work of testdata/work. What reaches further has to be
granted by the configuration.

Exit code 1 means that an example failed, or that there are no examples.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			file := args[0]
			if pluginName.MatchString(file) {
				if file, err = a.findPlugin(cmd.Context(), file); err != nil {
					return err
				}
			}
			return testFile(cmd.Context(), a, file)
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// testOutput is the output of the command test.
type testOutput struct {
	Plugin   string    `json:"plugin"`
	Version  string    `json:"version"`
	Examples []example `json:"examples"`
	Untested []string  `json:"untested"` // tools without examples
	Untyped  []string  `json:"untyped"`  // arguments whose schema allows any value, in the form TOOL.ARGUMENT
}

// example is an example of a tool, together with its outcome.
type example struct {
	Tool    string          `json:"tool"`
	Name    string          `json:"name,omitempty"`
	Args    json.RawMessage `json:"args"`
	Passed  bool            `json:"passed"`
	Problem string          `json:"problem,omitempty"`
	Usage   abi.Usage       `json:"usage"` // usage of the first call
}

func testFile(ctx context.Context, a *app, name string) error {
	r, done, err := rehearse(ctx, a, name)
	if err != nil {
		return err
	}
	defer done()

	m := r.plugin.Manifest
	out := testOutput{Plugin: m.Name, Version: m.Version, Examples: []example{}, Untested: []string{}, Untyped: []string{}}
	failed := 0
	for _, tool := range r.plugin.Tools {
		for _, name := range untyped(tool.InputSchema) {
			out.Untyped = append(out.Untyped, tool.Name+"."+name)
		}
		if len(tool.Examples) == 0 {
			out.Untested = append(out.Untested, tool.Name)
		}
		for _, one := range tool.Examples {
			e, err := r.try(ctx, tool, one)
			if err != nil {
				return err
			}
			if !e.Passed {
				failed++
			}
			out.Examples = append(out.Examples, e)
		}
	}

	switch {
	case len(out.Examples) == 0:
		err = &hintError{errors.New("no tool has an example, so nothing was tested"), "add examples to the tools of the manifest"}
	case failed > 0:
		err = &reportedError{fmt.Errorf("%d of %s failed", failed, plural(len(out.Examples), "example"))}
	}
	return a.answer(out, err, func() { out.print(a, failed) })
}

// granted returns an error if a tool with examples lacks grants that only the
// configuration can give.
func (r *rehearsal) granted(a *app) error {
	for _, tool := range r.plugin.Tools {
		if err := tool.Denied(); err != nil && len(tool.Examples) > 0 {
			return &hintError{err, a.config.addTo() + "\n" + strings.TrimSuffix(lackingFor(&a.config.config, r.Service, tool.Name), "\n")}
		}
	}
	return nil
}

// try runs an example. If the tool is idempotent, it does so twice.
func (r *rehearsal) try(ctx context.Context, tool *plugins.Tool, one abi.Example) (example, error) {
	out := example{Tool: tool.Name, Name: one.Name, Args: one.Args}
	session, err := r.reset()
	if err != nil {
		return out, err
	}
	before, err := r.state(ctx, session)
	if err != nil {
		return out, err
	}

	result, callErr := r.call(ctx, session, tool, one.Args)
	if ctx.Err() != nil {
		return out, callErr
	}
	out.Usage, out.Problem = result.Usage, differs(one, result, callErr)
	after, err := r.state(ctx, session)
	if err != nil || out.Problem != "" {
		out.Problem += r.unfilled()
		return out, err
	}
	if changed := changes(before, after); tool.Hints.Readonly && len(changed) > 0 {
		out.Problem = "the tool says readonly, and has changed " + strings.Join(changed, ", ")
		return out, nil
	}

	if tool.Hints.Idempotent && one.Error == "" {
		again, callErr := r.call(ctx, session, tool, one.Args)
		if ctx.Err() != nil {
			return out, callErr
		}
		twice, err := r.state(ctx, session)
		if err != nil {
			return out, err
		}
		out.Problem = repeats(again, callErr, changes(after, twice))
	}
	out.Passed = out.Problem == ""
	return out, nil
}

// repeats returns what is wrong with the second call of an idempotent tool, or nothing
// if all is well.
func repeats(again abi.Result, err error, changed []string) string {
	switch {
	case again.Kind != abi.Success:
		return "the tool says idempotent, and its second call fails: " + ends(again, err)
	case len(changed) > 0:
		return "the tool says idempotent, and its second call has changed " + strings.Join(changed, ", ")
	}
	return ""
}

// differs returns how the outcome of a call differs from the example, or nothing if it
// does not.
func differs(one abi.Example, result abi.Result, err error) string {
	switch {
	case one.Error != "" && result.Kind == abi.Success:
		return fmt.Sprintf("expected an error with %q, found the result %s", one.Error, brief(result.Value))
	case one.Error != "" && !strings.Contains(result.Error, one.Error):
		return fmt.Sprintf("expected an error with %q, found %s", one.Error, ends(result, err))
	case one.Error != "":
		return ""
	case result.Kind != abi.Success:
		return fmt.Sprintf("expected %s, found %s", brief(one.Result), ends(result, err))
	case !sameValue(one.Result, result.Value):
		return fmt.Sprintf("expected %s, found %s", brief(one.Result), brief(result.Value))
	}
	return ""
}

// ends says how a failed call ended, including the reason, which the author needs.
func ends(result abi.Result, err error) string {
	text := fmt.Sprintf("%s: %s", result.Kind, result.Error)
	if err != nil && !strings.Contains(result.Error, err.Error()) {
		text += " (" + err.Error() + ")"
	}
	return text
}

// sameValue reports whether two texts represent the same JSON value. An empty text
// means null.
func sameValue(a, b json.RawMessage) bool {
	var one, other any
	_ = json.Unmarshal(a, &one) // both are JSON
	_ = json.Unmarshal(b, &other)
	return reflect.DeepEqual(one, other)
}

// changes returns the names whose values differ.
func changes(before, after map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if old, ok := before[name]; !ok || old != after[name] {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// brief formats a value for people.
func brief(value json.RawMessage) string {
	if len(value) == 0 {
		return "no value"
	}
	return short(string(value), 301)
}

func (t testOutput) print(a *app, failed int) {
	rows := [][]string{{"", "TOOL", "ARGUMENTS", "FUEL", "TIME", "MEMORY"}}
	for _, e := range t.Examples {
		rows = append(rows, append([]string{map[bool]string{true: "ok", false: "FAIL"}[e.Passed], e.Tool, e.title()}, measured(e.Usage)...))
	}
	if len(t.Examples) > 0 {
		a.table(rows)
	}
	for _, e := range t.Examples {
		if !e.Passed {
			a.printf("\n%s %s\n  %s\n", e.Tool, brief(e.Args), e.Problem)
		}
	}
	if len(t.Untested) > 0 {
		a.printf("\nwithout an example: %s\n", strings.Join(t.Untested, ", "))
	}
	if len(t.Untyped) > 0 {
		a.printf("\nof any type, which a model has to guess: %s\n", strings.Join(t.Untyped, ", "))
	}
	a.printf("\n%s %s: %d passed, %d failed\n", t.Plugin, t.Version, len(t.Examples)-failed, failed)
}

// untyped returns the arguments whose schema has only a description.
func untyped(schema json.RawMessage) (names []string) {
	var s struct{ Properties map[string]json.RawMessage }
	_ = json.Unmarshal(schema, &s) // it was compiled, and has them
	for name, raw := range s.Properties {
		var keywords map[string]json.RawMessage // none for true
		_ = json.Unmarshal(raw, &keywords)
		for _, about := range []string{"title", "description", "default", "examples"} {
			delete(keywords, about)
		}
		if len(keywords) == 0 && string(raw) != "false" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// measured returns the table cells of a call's cost.
func measured(u abi.Usage) []string {
	return []string{count(u.Fuel), (u.Wall - u.Wait).Round(10 * time.Microsecond).String(), human.Bytes(u.MemoryPeak)}
}

// title returns the name of an example.
func (e example) title() string {
	if e.Name != "" {
		return oneLine(e.Name)
	}
	return short(brief(e.Args), 40)
}
