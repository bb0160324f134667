package plugins

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConfigSchema: settings that do not fit the schema of their plugin are a problem. The
// plugin can still be called.
func TestConfigSchema(t *testing.T) {
	m := named("mine")
	m.ConfigSchema = json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","minLength":2},"days":{"type":"integer"}},"required":["city"],"additionalProperties":false}`)
	for name, c := range map[string]struct {
		config map[string]string
		want   string
	}{
		"fits":           {map[string]string{"city": "Bern", "days": "3"}, ""},
		"missing":        {nil, "grants.mine.config: missing: city: toolhost inspect shows the settings"},
		"misspelled":     {map[string]string{"city": "Bern", "day": "3"}, "grants.mine.config: unknown field: day: toolhost inspect shows the settings"},
		"too short":      {map[string]string{"city": "B"}, "grants.mine.config: /city: minLength: got 1, want 2: toolhost inspect shows the settings"},
		"another type":   {map[string]string{"city": "Bern", "days": "many"}, "grants.mine.config: /days: expected integer, found string: toolhost inspect shows the settings"},
		"number as text": {map[string]string{"city": "42"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := openWith(t, newHost(t), Config{Folders: []Folder{folder(map[string][]byte{"mine.wasm": sealed(m)})}, Grants: map[string]Grant{"mine": {Config: c.config}}})
			require.Equal(t, []string{"mine"}, toolNames(r))
			if c.want == "" {
				require.Empty(t, problems(r))
				return
			}
			require.Equal(t, []string{"plugins/mine.wasm: " + c.want}, problems(r))
		})
	}

	m.ConfigSchema = json.RawMessage(`{"type":"object","properties":[]}`)
	require.Contains(t, problems(open(t, map[string][]byte{"mine.wasm": sealed(m)}))[0], "/config_schema: ")
}
