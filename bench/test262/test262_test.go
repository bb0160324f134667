package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/bench/internal/known"
)

// TestList: the list of failures can be read.
func TestList(t *testing.T) {
	list, err := known.Parse(failures)
	require.NoError(t, err)
	require.NotEmpty(t, list)
}

func TestCheck(t *testing.T) {
	ctx := context.Background()
	s, err := newSuite(ctx, "testdata/suite")
	require.NoError(t, err)
	defer s.close()
	s.fuel = 1_000_000_000
	names, err := s.tests("sample")
	require.NoError(t, err)

	o, err := s.runAll(ctx, names)
	require.NoError(t, err)
	require.Equal(t, 20, o.run)
	require.Equal(t, 10, o.passed)
	require.Positive(t, o.fuel)
	require.Equal(t, map[string]string{
		"sample/async-fails.js":        "sloppy: TypeError: no\nstrict: TypeError: no",
		"sample/async-never.js":        "sloppy: ends the program: An internal error occurred while executing the tool\nstrict: ends the program: An internal error occurred while executing the tool",
		"sample/fails.js":              "sloppy: Test262Error: expected true\nstrict: Test262Error: expected true",
		"sample/loops.js":              "strict: ends the program: out of fuel after 1000000000 units",
		"sample/module-async-fails.js": "module: TypeError: no",
		"sample/module-fails.js":       "module: Error: Test262Error { message: \"expected true\" }",
		"sample/only-sloppy-passes.js": "strict: ReferenceError: undeclared is not defined",
		"sample/parse-fails.js":        "sloppy: expected SyntaxError, got string: evaluated\nstrict: expected SyntaxError, got string: evaluated",
		"sample/throws-nothing.js":     "sloppy: expected RangeError\nstrict: expected RangeError",
		"sample/throws-other.js":       "sloppy: expected RangeError, got TypeError: cannot read property 'x' of null\nstrict: expected RangeError, got TypeError: cannot read property 'x' of null",
	}, o.failed)

	var out bytes.Buffer
	require.ErrorIs(t, s.check(ctx, &out, []string{"sample"}, "# Other.\nsample/passes.js\nother/folder.js\n"), errDiffers)
	require.Contains(t, out.String(), "not known to fail: sample/fails.js\n\tsloppy: Test262Error: expected true\n")
	require.Contains(t, out.String(), "known to fail, and does not: sample/passes.js\n")
	require.NotContains(t, out.String(), "other/folder.js")
}

func TestParseMetadata(t *testing.T) {
	m, err := parseMetadata("// x\n/*---\r\nflags: [async]\r\nnegative:\r\n  phase: parse\r\n  type: SyntaxError\r\n---*/\r\n")
	require.NoError(t, err)
	require.Equal(t, []string{"async"}, m.Flags)
	require.Equal(t, "SyntaxError", m.Negative.Type)

	_, err = parseMetadata("/*--- no end")
	require.Error(t, err)
}
