package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
)

// check notes the values that are none for their keys.
func (c *loaded) check() {
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			c.fault(key, "expected one of %s, found %q", strings.Join(allowed, ", "), value)
		}
	}
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	oneOf("compile", c.Compile, compileAhead, compileOnDemand)
	oneOf("approve", c.Approve, "deny", "auto")
	oneOf("background.park", c.Background.Park, string(server.ParkHinted), string(server.ParkAll), string(server.ParkNever))
	oneOf("background.end_session", c.Background.EndSession, string(background.EndParked), string(background.EndAll))
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
		"host.compile_memory": int64(c.Host.CompileMemory), "host.compile_time": int64(c.Host.CompileTime),
	} {
		if n < 0 {
			c.fault(key, "expected a positive number, found %v", c.merged.Get(strings.ReplaceAll(key, ".", delim)))
		}
	}
	for name, g := range c.Grants {
		for i, m := range g.Files {
			at := fmt.Sprintf("grants.%s.files.%d", name, i)
			oneOf(at+".mode", m.Mode, "read", "write")
			if m.Dir == "" {
				c.fault(at+".dir", "expected a folder")
			}
			if !strings.HasPrefix(m.Path, "/") || m.Path == "/" {
				c.fault(at+".path", "expected an absolute path below /, such as /work, found %q", m.Path)
			}
		}
	}
	c.checkCompile()
	c.checkPark()
	c.checkOAuth()
}

// The least that a compiler needs for a plugin of no size.
const (
	minCompileMemory = 128 << 20
	minCompileTime   = time.Second
)

// checkCompile refuses limits that no plugin could be compiled in.
func (c *loaded) checkCompile() {
	if n := c.Host.CompileMemory; n > 0 && n < minCompileMemory {
		c.fault("host.compile_memory", "expected at least %dMiB", minCompileMemory>>20)
	}
	if d := c.Host.CompileTime; d > 0 && d < minCompileTime {
		c.fault("host.compile_time", "expected at least %v", minCompileTime)
	}
}

// When serve and mcp compile plugins: in the background once they are ready, or
// each with its first call.
const (
	compileAhead    = "ahead"
	compileOnDemand = "on_demand"
)

// checkOAuth notes of each fault which key has it.
func (c *loaded) checkOAuth() {
	o := c.OAuth.config()
	if o == nil {
		return
	}
	if err := o.Check(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			key, text, _ := strings.Cut(line, ": ")
			c.fault("oauth."+key, "%s", text)
		}
	}
}

// checkPark refuses a time after which calls are parked that leaves them less
// than they are promised.
func (c *loaded) checkPark() {
	if c.Background.ParkAfter == nil || c.Background.Park == string(server.ParkNever) || c.faulty("max_limits.background") {
		return
	}
	after, most := *c.Background.ParkAfter, cmp.Or(c.MaxLimits.Background, background.DefaultMaxTimeout)
	switch {
	case after < 0:
		c.fault("background.park_after", "expected a positive duration, or 0 for never, found %v", after)
	case after > 0 && after+server.ParkedTime > most:
		c.fault("background.park_after", "a call that is parked after %v may take %v, and max_limits.background is %v: raise it, park sooner, or set background.park to never",
			after, after+server.ParkedTime, most)
	}
}

// checkUse notes what is no fault of a value, and cannot work, or not as it is
// written: of what some commands do without, and what may be mended while a
// server runs, such as a folder that is not there yet.
func (c *loaded) checkUse() {
	c.checkListen()
	c.checkLimits()
	for _, f := range c.ignored {
		c.faults = append(c.faults, &fault{text: f.String()})
	}
	folder := func(key, dir string) {
		if info, err := os.Stat(dir); err != nil {
			c.fault(key, "%v", err)
		} else if !info.IsDir() {
			c.fault(key, "%s is not a folder", dir)
		}
	}
	safe := func(key, dir string) {
		folder(key, dir)
		if err := owned.Behind(dir); errors.Is(err, owned.ErrUnsafe) {
			c.fault(key, "%v", err)
		}
	}
	for i, dir := range c.Plugins {
		safe(fmt.Sprintf("plugins.%d", i), dir)
	}
	for name, g := range c.Grants {
		for i, m := range g.Files {
			folder(fmt.Sprintf("grants.%s.files.%d.dir", name, i), m.Dir)
		}
	}
	if _, err := os.Stat(c.Data); !errors.Is(err, fs.ErrNotExist) { // it would be made
		safe("data", c.Data)
	}
}

// checkLimits notes limits that others keep from ever being reached.
func (c *loaded) checkLimits() {
	for key, n := range map[string][2]int64{
		"limits.fuel":       {c.Limits.Fuel, cmp.Or(c.MaxLimits.Fuel, server.DefaultMaxFuel)},
		"limits.memory":     {int64(c.Limits.Memory), cmp.Or(int64(c.MaxLimits.Memory), server.DefaultMaxMemory)},
		"limits.output":     {int64(c.Limits.Output), cmp.Or(int64(c.MaxLimits.Output), server.DefaultMaxOutput)},
		"limits.timeout":    {int64(c.Limits.Timeout), int64(cmp.Or(c.MaxLimits.Timeout, background.DefaultMaxTimeout))},
		"limits.background": {int64(c.Limits.Background), int64(cmp.Or(c.MaxLimits.Background, background.DefaultMaxTimeout))},
	} {
		if n[0] > n[1] && !c.faulty("max_"+key) {
			c.fault(key, "more than max_%s lets a call have: lower it, or raise that", key)
		}
	}
	if b := c.Background; b.PerSession > cmp.Or(b.PerHost, background.DefaultPerHost) && !c.faulty("background.per_host") {
		c.fault("background.per_session", "more than background.per_host lets all sessions have together: lower it, or raise that")
	}
}
