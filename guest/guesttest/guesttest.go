// Package guesttest tests plugins written with package guest, in the process of
// the test and on any platform. One line tests a plugin's manifest and examples:
//
//	func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }
//
// Use [Call], [Host.Call] and [StoppedClock] for other tests. There is no sandbox: no limit
// applies, and a tool that prints to [os.Stdout] prints to the output of the test.
package guesttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/internal/schema"
)

// Check fails the test if a host would refuse the plugin's manifest, or if an example does not
// return its stated result. Each example is a subtest. The folders that the tool or its plugin
// needs, or can use, are copies of folders in testdata: /work is a copy of testdata/work. See
// [guest.Call.Folder]. The clock is real, even if the plugin does not need a real one.
func Check(t *testing.T, p *guest.Plugin) {
	t.Helper()
	m, err := p.Manifest()
	if err != nil {
		t.Fatal(err)
	}

	for _, tool := range m.Tools {
		if problem := badSchema(&tool); problem != "" {
			t.Errorf("tool %s: %s", tool.Name, problem)
		}
		for i, e := range tool.Examples {
			t.Run(exampleName(tool.Name, i, e), func(t *testing.T) {
				copies, missing := folders(t, m.NeedsOf(&tool).All().Files)
				if problem := wrongExample(Host{Folders: copies}, p, &tool, e); problem != "" {
					t.Error(problem + missing)
				}
			})
		}
	}
}

// folders returns copies of the folders below testdata, by the paths of a plugin's needs,
// and a line for each that is missing there.
func folders(t *testing.T, needs []abi.FileNeed) (all map[string]string, missing string) {
	all = map[string]string{}
	for _, f := range needs {
		all[f.Path] = t.TempDir()
		from := filepath.Join("testdata", filepath.FromSlash(f.Path))
		err := os.CopyFS(all[f.Path], os.DirFS(from))
		if errors.Is(err, fs.ErrNotExist) {
			missing += fmt.Sprintf("\n%s was empty: there is no %s", f.Path, from)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return all, missing
}

func exampleName(tool string, i int, e abi.Example) string {
	if e.Name == "" {
		return fmt.Sprintf("%s/%d", tool, i)
	}
	return tool + "/" + e.Name
}

// badSchema returns what is wrong with the schemas of a tool, or nothing.
func badSchema(tool *abi.Tool) string {
	if _, err := schema.Compile(tool.InputSchema); err != nil {
		return fmt.Sprintf("input schema: %v", err)
	}
	if tool.OutputSchema == nil {
		return ""
	}
	if _, err := schema.Compile(tool.OutputSchema); err != nil {
		return fmt.Sprintf("output schema: %v", err)
	}
	return ""
}

// wrongExample returns what is wrong with an example, or nothing.
func wrongExample(h Host, p *guest.Plugin, tool *abi.Tool, e abi.Example) string {
	got := h.Call(p, tool.Name, e.Args)
	switch {
	case e.Error != "" && (got.Kind != abi.ToolError || !strings.Contains(got.Error, e.Error)):
		return fmt.Sprintf("expected a tool error with %q, found %s", e.Error, got)
	case e.Error != "":
		return ""
	case !got.IsSuccess():
		return fmt.Sprintf("expected a success, found %s", got)
	case !sameJSON(got.Value, e.Result):
		return fmt.Sprintf("expected the result %s, found %s", e.Result, cmp.Or(string(got.Value), "none"))
	}

	if problems := misfit(tool.OutputSchema, got.Value); problems != "" {
		return "the result does not fit the output schema: " + problems
	}
	return ""
}

// fill returns arguments with the defaults of their schema, or what does not fit.
func fill(raw, args json.RawMessage) (filled json.RawMessage, problems string) {
	s, err := schema.CompileArgs(raw)
	if err != nil {
		return nil, err.Error()
	}
	if problems := list(s.Check(args)); problems != "" {
		return nil, problems
	}
	if filled, err = s.Fill(args); err != nil {
		return nil, err.Error()
	}
	return filled, ""
}

// misfit lists the parts of a document that do not fit a schema.
func misfit(raw, document json.RawMessage) string {
	if raw == nil || document == nil {
		return ""
	}
	s, err := schema.Compile(raw)
	if err != nil {
		return err.Error()
	}
	return list(s.Check(document))
}

func list(problems []abi.Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
