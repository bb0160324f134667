package server

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// TestScriptsWithMistakes: scripts as models write them and should not have. Each comes to
// the value that was meant, or to a sentence that says what to write. The file has pairs: a
// script, and what the model reads.
func TestScriptsWithMistakes(t *testing.T) {
	const file = "testdata/mistakes.txtar"
	s := openScripts(t, Config{})
	archive, err := txtar.ParseFile(file)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(archive.Files), 2*30)

	for i := 0; i+1 < len(archive.Files); i += 2 {
		script, want := archive.Files[i], &archive.Files[i+1]
		require.Equal(t, script.Name+", what the model reads", want.Name)

		t.Run(script.Name, func(t *testing.T) {
			r, _ := s.Service.Call(t.Context(), Request{Tool: "exec", Args: code(strings.TrimSuffix(string(script.Data), "\n"))})
			got := readByModel(r)
			if *update {
				want.Data = []byte(got)
			}
			require.Equal(t, string(want.Data), got)
		})
	}
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o644))
	}
}

// readByModel returns the value or the error of a result, and its text blocks.
func readByModel(r abi.Result) string {
	var b strings.Builder
	if r.Value != nil {
		b.WriteString("value: " + string(r.Value) + "\n")
	}
	if r.Error != "" {
		b.WriteString("error: " + r.Error + "\n")
	}
	for _, block := range r.Content {
		b.WriteString("text: " + block.Text + "\n")
	}
	return b.String()
}

// A script that has failed begins none of the calls that wait in its queue: a model that
// repeats the script would make them twice.
func TestFailedScriptBeginsNothing(t *testing.T) {
	var l ledger
	s := openScripts(t, Config{Tools: l.tools()})
	r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", Args: code(
		`await Promise.all(Array.from({ length: 200 }, (_, i) => i === 100 ? Promise.reject(new Error("no")) : tools.put({ text: String(i) })))`)})
	require.NoError(t, err)
	require.Contains(t, r.Error, "Error: no")
	require.Len(t, l.all(), 63)
}
