package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/bench/internal/known"
)

// TestList: the list of failures can be read, and each is of a module that is run.
func TestList(t *testing.T) {
	list, err := known.Parse(failures)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for name := range list {
		require.Contains(t, modules, moduleOf(name))
	}
}

// sampleFailures are the failures of testdata.
const sampleFailures = `# They are wrong.
test.test_sample.Sample.test_breaks
test.test_sample.Sample.test_fails
test.test_sample.Sample.test_fails_in_part
test.test_sample.Sample.test_unexpected
setUpClass (test.test_sample.Broken)

# ends the program
test.test_sample.Sample.test_ends_program
`

func TestRun(t *testing.T) {
	ctx := context.Background()
	s, err := newSuite(ctx, "testdata/lib")
	require.NoError(t, err)
	defer s.close()
	expected, err := known.Parse(sampleFailures)
	require.NoError(t, err)

	o, err := s.run(ctx, "test_sample", expected)
	require.NoError(t, err)
	require.Positive(t, o.fuel)
	require.Equal(t, 8, o.Run)
	require.Equal(t, 3, o.Passed)
	require.Equal(t, map[string]int{"not today": 1}, o.Skipped)
	require.Equal(t, map[string]string{
		"setUpClass (test.test_sample.Broken)":       "OSError: no class",
		"test.test_sample.Sample.test_breaks":        "OSError: broken",
		"test.test_sample.Sample.test_ends_program":  "not run",
		"test.test_sample.Sample.test_fails":         "AssertionError: 1 != 2",
		"test.test_sample.Sample.test_fails_in_part": "AssertionError: 2 != 1",
		"test.test_sample.Sample.test_unexpected":    "expected to fail, and does not",
	}, o.Failed)

	o, err = s.run(ctx, "test_skipped", nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"no module": 1}, o.Skipped)

	_, err = s.run(ctx, "test_sample", nil)
	require.ErrorContains(t, err, "exited with code 3")
	o, err = s.run(ctx, "test_none", nil)
	require.NoError(t, err)
	require.Contains(t, o.Failed["unittest.loader._FailedTest.test_none"], "No module named 'test.test_none'")

	var out bytes.Buffer
	require.NoError(t, s.check(ctx, &out, []string{"test_sample"}, sampleFailures))
	require.Contains(t, out.String(), "5 fail: They are wrong.")

	out.Reset()
	const other = "# Other.\ntest.test_sample.Sample.test_passes\n\n# ends the program\ntest.test_sample.Sample.test_ends_program\n"
	require.ErrorIs(t, s.check(ctx, &out, []string{"test_sample"}, other), errDiffers)
	require.Contains(t, out.String(), "not known to fail: test.test_sample.Sample.test_breaks\n\tOSError: broken\n")
	require.Contains(t, out.String(), "known to fail, and does not: test.test_sample.Sample.test_passes\n")
}
