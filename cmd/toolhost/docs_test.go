package main

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The table of docs/operating.md has every key of the configuration, no other,
// and the defaults of the code.
func TestDocumentedDefaults(t *testing.T) {
	documented := documentedDefaults(t)
	for key := range leaves() {
		require.Contains(t, documented, strings.ReplaceAll(key, delim, "."))
	}
	for key := range documented {
		if strings.HasPrefix(key, "grants.") {
			continue
		}
		require.Contains(t, leaves(), strings.ReplaceAll(key, ".", delim))
	}

	values := maps.Clone(builtIn)
	for key, value := range defaults() {
		values[strings.ReplaceAll(key, delim, ".")] = value
	}
	for key, want := range values {
		if key != "data" { // which depends on the system
			require.Equal(t, plain(fmt.Sprint(want)), plain(documented[key]), key)
		}
	}
}

// plain makes what stands for the same number or time the same text.
func plain(text string) string {
	text = strings.TrimSuffix(strings.ReplaceAll(strings.Trim(text, "`"), ",", ""), " units")
	text = strings.ReplaceAll(text, "10¹³", "1e13")
	var size byteSize
	if size.UnmarshalText([]byte(text)) == nil {
		return strconv.FormatInt(int64(size), 10)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.String()
	}
	return text
}

// documentedDefaults reads the first two columns of the table of keys. A cell
// may have several keys, of which the later ones begin with a dot, and as many
// defaults.
func documentedDefaults(t *testing.T) map[string]string {
	page, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| key | default | meaning |\n|---|---|---|\n")
	require.True(t, found, "the table of keys has another head")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		keys, values := expandKeys(strings.TrimPrefix(cells[0], "| ")), strings.Split(cells[1], ", ")
		for i, key := range keys {
			value := cells[1]
			if len(values) == len(keys) {
				value = values[i]
			}
			documented[key] = value
		}
	}
	return documented
}

// expandKeys returns the whole names of keys that are written as `a.b`, `.c`.
func expandKeys(cell string) (keys []string) {
	for name := range strings.SplitSeq(cell, ", ") {
		name = strings.Trim(name, "`")
		switch rest, same := strings.CutPrefix(name, "."); {
		case same:
			first := keys[0]
			keys = append(keys, first[:strings.LastIndex(first, ".")+1]+rest)
		case name == "max_limits.*":
			for _, limit := range []string{"fuel", "memory", "output", "timeout", "background"} {
				keys = append(keys, "max_limits."+limit)
			}
		default:
			keys = append(keys, name)
		}
	}
	return keys
}
