package abi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func TestHintsReadCarefully(t *testing.T) {
	for name, c := range map[string]struct {
		hints                 abi.Hints
		destructive, pureInit bool
	}{
		"left out":  {abi.Hints{}, true, true},
		"readonly":  {abi.Hints{Readonly: true}, false, true},
		"all false": {abi.Hints{Destructive: new(false), PureInit: new(false)}, false, false},
		"all true":  {abi.Hints{Destructive: new(true), PureInit: new(true)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.destructive, c.hints.IsDestructive())
			require.Equal(t, c.pureInit, c.hints.IsPureInit())
		})
	}
}

func TestAgentName(t *testing.T) {
	require.Equal(t, "math_add", abi.AgentName("math", "add"))
	require.Equal(t, "wordcount", abi.AgentName("wordcount", "wordcount"))
}

func TestLookup(t *testing.T) {
	m := &abi.Manifest{Tools: []abi.Tool{{Name: "a"}, {Name: "b", Title: "B"}}}
	tool, ok := m.Lookup("b")
	require.True(t, ok)
	require.Equal(t, "B", tool.Title)
	_, ok = m.Lookup("c")
	require.False(t, ok)
}

func TestNearest(t *testing.T) {
	known := []string{"description", "version", "name", "kv"}
	for name, want := range map[string]string{
		"descripton":             "description",
		"Description":            "description",
		"dscrption":              "description",
		"verison":                "version",
		"names":                  "name",
		"nmae":                   "name",
		"nmea":                   "",
		"k":                      "kv",
		"":                       "",
		"icon":                   "",
		"größe":                  "",
		strings.Repeat("v", 100): "",
	} {
		require.Equal(t, want, abi.Nearest(name, known), name)
	}

	require.Empty(t, abi.Nearest("name", nil))
	require.Equal(t, "add", abi.Nearest("adx", []string{"sub", "add", "ado"}), "the first of the nearest")
}
