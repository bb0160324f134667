package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
)

// The settings of background runs reach the service. A park_after that is not set
// is not the same as never.
func TestRunsConfig(t *testing.T) {
	defaults := server.Config{Park: server.ParkOverdue, Runs: server.RunsConfig{EndSession: background.EndParked}}
	with := func(change func(*server.Config)) server.Config {
		c := defaults
		change(&c)
		return c
	}
	never := with(func(c *server.Config) { c.ParkAfter = -1 })
	for _, test := range []struct {
		yaml string
		want server.Config
	}{
		{`{}`, defaults},
		{`background: {park_after: 90s}`, with(func(c *server.Config) { c.ParkAfter = 90 * time.Second })},
		{`background: {park_after: 0}`, never},
		{`background: {park_after: 0s}`, never},
		{`background: {park_after: null}`, never},
		{`background: {park: never, park_after: 100h}`, with(func(c *server.Config) { c.Park, c.ParkAfter = server.ParkNever, 100*time.Hour })},
		{
			`background: {per_session: 1, per_host: 2, parked: 3, schedules: 4, park: all, retention: 5h, retain_runs: 6, notice_ttl: 7h,
			  output_cap: 8KiB, log_quota: 9MiB, record_quota: 8MiB, end_session: all, min_interval: 10s, misfire: 11s}`,
			server.Config{Park: server.ParkAll, LogQuota: 9 << 20, Runs: server.RunsConfig{
				PerSession: 1, PerHost: 2, Parked: 3, Schedules: 4, Retention: 5 * time.Hour, RetainRuns: 6, NoticeTTL: 7 * time.Hour,
				OutputCap: 8 << 10, RecordQuota: 8 << 20, EndSession: background.EndAll, MinInterval: 10 * time.Second, Misfire: 11 * time.Second,
			}},
		},
	} {
		t.Run(test.yaml, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "toolhost.yaml")
			require.NoError(t, os.WriteFile(file, []byte(test.yaml), 0o600))
			flags := pflag.NewFlagSet("toolhost", pflag.ContinueOnError)
			flags.String("config", "", "")
			require.NoError(t, flags.Set("config", file))
			c, err := loadConfig(flags, nil)
			require.NoError(t, err)
			require.Equal(t, test.want.Runs, c.server.Runs)
			require.Equal(t, test.want.Park, c.server.Park)
			require.Equal(t, test.want.ParkAfter, c.server.ParkAfter)
			require.Equal(t, test.want.LogQuota, c.server.LogQuota)
		})
	}
}

// Mappings of several files are merged by name, and shown as they are in force. Everything
// else is replaced.
func TestMergedFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	own, named := filepath.Join(dir, "toolhost", "toolhost.yaml"), filepath.Join(dir, "named.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(own), 0o700))
	require.NoError(t, os.WriteFile(own, []byte(`{grants: {web: {env: {A: "1", B: "2"}, tools: [a]}}}`), 0o600))
	require.NoError(t, os.WriteFile(named, []byte(`{grants: {web: {env: {B: "3", C: "4"}, tools: [b]}}}`), 0o600))

	c, err := loadConfig(pflag.NewFlagSet("toolhost", pflag.ContinueOnError), []string{"TOOLHOST_CONFIG=" + named})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"A": "1", "B": "3", "C": "4"}, c.server.Grants["web"].Env)
	require.Equal(t, []string{"b"}, c.server.Grants["web"].Tools)
	require.Equal(t, map[string]any{"A": "1", "B": "3", "C": "4"}, c.inForce()["grants.web.env"].raw)
	require.Equal(t, map[string]any{"A": "1", "B": "2"}, c.layers[0]["grants.web.env"].raw)
}

// A size below zero is refused where it is written, not where it would be used.
func TestNegativeSizes(t *testing.T) {
	for _, key := range []string{
		"limits.memory", "limits.output", "max_limits.memory", "max_limits.output",
		"host.memory", "host.cache", "background.output_cap", "background.log_quota", "background.record_quota",
	} {
		section, name, _ := strings.Cut(key, ".")
		file := filepath.Join(t.TempDir(), "toolhost.yaml")
		require.NoError(t, os.WriteFile(file, []byte(section+": {"+name+": -5}"), 0o600))
		code, _, errs := toolhost(t.Context(), "config", "--config", file)
		require.Equal(t, exitUsage, code, key)
		require.Contains(t, errs, key+": expected a positive number, found -5")
	}
}

// Invalid JSON is reported with its line, as invalid YAML and TOML are.
func TestLinesOfJSON(t *testing.T) {
	for _, test := range []struct{ json, want string }{
		{"", "unexpected end of JSON input (line 1, column 1)"},
		{"{}}", "invalid character '}' after top-level value (line 1, column 3)"},
		{"{\n\"watch\": true,\n}\n", "invalid character '}' looking for beginning of object key string (line 3, column 1)"},
		{"{\n\"data\": \"a\nb\"}", "invalid character '\\n' in string literal (line 2, column 11)"},
		{"{\r\n\"watch\": yes}", "invalid character 'y' looking for beginning of value (line 2, column 10)"},
	} {
		file := filepath.Join(t.TempDir(), "toolhost.json")
		require.NoError(t, os.WriteFile(file, []byte(test.json), 0o600))
		code, _, errs := toolhost(t.Context(), "config", "--config", file)
		require.Equal(t, exitUsage, code)
		require.Equal(t, "toolhost: "+file+": "+test.want+"\n", errs)
	}
}

// A file takes no more time and memory than its size allows, whatever it nests,
// and the error names the file, the line and the reason.
func TestDeepConfiguration(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"toml", "watch = true\n" + strings.Repeat("a.", 30_000) + "a = 1", "expected at most 100 levels of nesting"},
		{"toml", strings.Repeat("a.", 50_000) + "a = 1", "the file has more than 65536 bytes, the limit"},
		{"toml", "[" + strings.Repeat("a.", 30_000) + "a]", "expected at most 100 levels of nesting"},
		{"toml", "a = " + strings.Repeat("{a = ", 101) + "1" + strings.Repeat("}", 101), "expected at most 100 levels of nesting"},
		{"yaml", "watch: true\na: " + strings.Repeat("[", 2000) + strings.Repeat("]", 2000), "expected at most 100 levels of nesting (line 2)"},
		{"json", "{\n\"a\":\n" + strings.Repeat("[", 500_000), "invalid character '[' exceeded max depth (line 3, column 10000)"},
		{"json", strings.Repeat(" ", 2<<20), "the file has more than 1048576 bytes, the limit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "toolhost."+test.name)
			require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)

			code, _, errs := toolhost(t.Context(), "config", "--config", file)

			runtime.ReadMemStats(&after)
			require.Equal(t, exitUsage, code)
			require.Equal(t, "toolhost: "+file+": "+test.want+"\n", errs)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		})
	}
}
