package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
)

func (c *config) check() error {
	oneOf := func(key, value string, allowed ...string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("%s: expected one of %s, found %q", key, strings.Join(allowed, ", "), value)
		}
		return nil
	}
	errs := []error{
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, "text", "json"),
		oneOf("approve", c.Approve, "deny", "auto"),
		oneOf("background.park", c.Background.Park, string(server.ParkHinted), string(server.ParkAll), string(server.ParkNever)),
		oneOf("background.end_session", c.Background.EndSession, string(background.EndParked), string(background.EndAll)),
		c.checkPark(), c.checkOAuth(),
	}
	for key, n := range map[string]int64{
		"limits.fuel": c.Limits.Fuel, "limits.timeout": int64(c.Limits.Timeout), "limits.background": int64(c.Limits.Background),
		"max_limits.fuel": c.MaxLimits.Fuel, "max_limits.timeout": int64(c.MaxLimits.Timeout), "max_limits.background": int64(c.MaxLimits.Background),
		"background.per_session": int64(c.Background.PerSession), "background.per_host": int64(c.Background.PerHost),
		"background.parked": int64(c.Background.Parked), "background.schedules": int64(c.Background.Schedules),
		"background.retention": int64(c.Background.Retention), "background.retain_runs": int64(c.Background.RetainRuns),
		"background.notice_ttl": int64(c.Background.NoticeTTL), "background.min_interval": int64(c.Background.MinInterval),
		"limits.memory": int64(c.Limits.Memory), "limits.output": int64(c.Limits.Output),
		"max_limits.memory": int64(c.MaxLimits.Memory), "max_limits.output": int64(c.MaxLimits.Output),
		"background.output_cap": int64(c.Background.OutputCap), "background.log_quota": int64(c.Background.LogQuota),
		"background.record_quota": int64(c.Background.RecordQuota),
		"host.memory":             int64(c.Host.Memory), "host.cache": int64(c.Host.Cache),
		"background.misfire": int64(c.Background.Misfire), "serve.drain": int64(c.Serve.Drain),
		"host.calls": int64(c.Host.Calls), "host.total_calls": int64(c.Host.Total), "host.warm_for": int64(c.Host.WarmFor),
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s: expected a positive number, found %d", key, n))
		}
	}
	for name, g := range c.Grants {
		for i, m := range g.Files {
			at := fmt.Sprintf("grants.%s.files.%d", name, i)
			errs = append(errs, oneOf(at+".mode", m.Mode, "read", "write"))
			if m.Dir == "" {
				errs = append(errs, fmt.Errorf("%s.dir: expected a folder", at))
			}
			if !strings.HasPrefix(m.Path, "/") || m.Path == "/" {
				errs = append(errs, fmt.Errorf("%s.path: expected an absolute path below /, such as /work, found %q", at, m.Path))
			}
		}
	}
	return errors.Join(errs...)
}

// checkOAuth says of each fault which key has it.
func (c *config) checkOAuth() error {
	o := c.OAuth.config()
	if o == nil {
		return nil
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("oauth.%s", strings.ReplaceAll(err.Error(), "\n", "\noauth."))
	}
	return nil
}

// checkPark refuses a time after which calls are parked that leaves them less
// than they are promised.
func (c *config) checkPark() error {
	if c.Background.ParkAfter == nil || c.Background.Park == string(server.ParkNever) {
		return nil
	}
	after, most := *c.Background.ParkAfter, cmp.Or(c.MaxLimits.Background, background.DefaultMaxTimeout)
	switch {
	case after < 0:
		return fmt.Errorf("background.park_after: expected a positive duration, or 0 for never, found %v", after)
	case after > 0 && after+server.ParkedTime > most:
		return fmt.Errorf("background.park_after: a call that is parked after %v may take %v, and max_limits.background is %v: raise it, park sooner, or set background.park to never",
			after, after+server.ParkedTime, most)
	}
	return nil
}
