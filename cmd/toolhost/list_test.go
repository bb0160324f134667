package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListOnTerminal: long grants do not push the description off a terminal. Programs get
// all of them.
func TestListOnTerminal(t *testing.T) {
	tools := []listedTool{{Name: "fetch", Description: "Fetches.", Grants: []string{strings.Repeat("http GET https://example.com/* ", 9)}}}
	grants := func(brief bool) string { return listRows(tools, brief)[1][4] }
	require.LessOrEqual(t, len([]rune(grants(true))), maxGrants)
	require.Equal(t, tools[0].Grants[0], grants(false))

	tools[0].Missing = []string{strings.Repeat("files /work (write) ", 9)}
	require.Regexp(t, "^MISSING: files /work .*…$", grants(true))
}
