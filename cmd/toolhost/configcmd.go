package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
)

func (a *app) configuration() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the effective configuration and where each value comes from",
		Args:  cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				a.config, _ = loadConfig(cmd.Flags(), a.environ)
				return nil // what is wrong is told with the rest
			}
			return a.load(cmd.Flags())
		},
		RunE: func(*cobra.Command, []string) error {
			if check {
				a.config.checkUse()
				return a.config.wrong()
			}
			values := a.config.values()
			if a.json {
				a.printJSON(values)
				return nil
			}
			w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
			for _, v := range values {
				fmt.Fprintf(w, "%s\t%s\t%s\n", v.Key, v.text(), v.Source)
			}
			return w.Flush()
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().BoolVar(&check, "check", false, "print nothing, or all that is wrong with it, such as folders that are not there, and fail then")
	return cmd
}

// setting is one value and its source.
type setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// text is the value as a line shows it, lists as they can be written in YAML.
func (s setting) text() string {
	switch s.Value.(type) {
	case []any, []string:
		if text, err := json.Marshal(s.Value); err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(s.Value)
}

// fromCode is the source of what no layer has.
const fromCode = "built in"

// builtIn are the values of keys that are left to the code they configure, as
// they would be written. Keys that are not in it have none.
var builtIn = map[string]any{
	"limits.fuel": int64(host.DefaultFuel), "max_limits.fuel": int64(server.DefaultMaxFuel),
	"limits.memory": inUnits(host.DefaultMemory), "max_limits.memory": inUnits(server.DefaultMaxMemory),
	"limits.output": inUnits(host.DefaultOutput), "max_limits.output": inUnits(server.DefaultMaxOutput),
	"limits.timeout": host.DefaultTimeout.String(), "max_limits.timeout": background.DefaultMaxTimeout.String(),
	"limits.background": background.DefaultTimeout.String(), "max_limits.background": background.DefaultMaxTimeout.String(),

	"background.per_session": background.DefaultPerSession, "background.per_host": background.DefaultPerHost,
	"background.parked": background.DefaultParked, "background.schedules": background.DefaultSchedules,
	"background.park_after": server.DefaultParkAfter.String(),
	"background.retention":  background.DefaultRetention.String(), "background.retain_runs": background.DefaultRetainRuns,
	"background.notice_ttl": background.DefaultNoticeTTL.String(),
	"background.output_cap": inUnits(background.DefaultOutputCap), "background.log_quota": inUnits(server.DefaultLogQuota),
	"background.record_quota": inUnits(server.DefaultRecordQuota),
	"background.min_interval": background.DefaultInterval.String(), "background.misfire": background.DefaultMisfire.String(),

	"host.memory": inUnits(host.DefaultHostMemory), "host.cache": inUnits(host.DefaultCacheSize),
	"host.total_calls": host.DefaultTotalCalls, "host.calls": host.DefaultCalls,
	"host.warm": host.DefaultWarm, "host.warm_for": host.DefaultWarmFor.String(),
}

// inUnits writes a number of bytes in the largest unit that takes no fraction.
func inUnits(bytes int64) string {
	text := strconv.FormatInt(bytes, 10)
	for _, u := range units[:4] { // those of 1024, the smallest first
		if bytes%u.bytes == 0 {
			text = strconv.FormatInt(bytes/u.bytes, 10) + u.suffix
		}
	}
	return text
}

// values are all keys that have a value, or could.
func (c *loaded) values() []setting {
	keys := leaves()
	for key := range c.merged.All() {
		if _, ok := keys[key]; !ok {
			keys[key] = nil
		}
	}
	var out []setting
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		s := c.setting(key)
		if s.Source == "" {
			s.Source = fromCode
		}
		if s.Value == nil && s.Source == fromCode {
			s.Value = builtIn[s.Key]
		}
		if s.Value == nil {
			s.Value = ""
		}
		out = append(out, s)
	}
	return out
}

// setting is the value of a key, as it may be shown. Its source is empty if no
// layer has it.
func (c *loaded) setting(key string) setting {
	s := setting{Key: strings.ReplaceAll(key, delim, "."), Value: c.merged.Get(key), Source: c.from(key)}
	if key == "token" && s.Value != nil && s.Value != "" {
		s.Value = "<redacted>"
	}
	return s
}

// set are the settings that some layer has.
func (c *loaded) set() (out []setting) {
	for _, key := range c.merged.Keys() {
		out = append(out, c.setting(key))
	}
	return out
}
