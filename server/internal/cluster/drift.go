package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

const (
	compareEvery = time.Minute      // how often plugins are compared
	graceTime    = 10 * time.Minute // how long plugins may differ before operators are notified: hosts are updated one after the other
)

// differences returns the plugins that are not the same on all live hosts.
func differences(hosts []wire.Host) []wire.HostDifference {
	live := slices.DeleteFunc(slices.Clone(hosts), func(h wire.Host) bool { return h.State != wire.HostLive })
	plugins := map[string]map[wire.HostPlugin][]string{} // names of hosts, by plugin and build
	for _, h := range live {
		for _, p := range h.Plugins {
			if plugins[p.Name] == nil {
				plugins[p.Name] = map[wire.HostPlugin][]string{}
			}
			plugins[p.Name][p] = append(plugins[p.Name][p], h.Name)
		}
	}

	found := []wire.HostDifference{}
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		d := wire.HostDifference{Plugin: name}
		for p, hosts := range plugins[name] {
			d.Builds = append(d.Builds, wire.PluginBuild{Version: p.Version, Digest: p.Digest, Hosts: hosts})
		}
		slices.SortFunc(d.Builds, func(a, b wire.PluginBuild) int {
			return cmp.Or(len(b.Hosts)-len(a.Hosts), strings.Compare(a.Version, b.Version), strings.Compare(a.Digest, b.Digest))
		})
		for _, h := range live {
			if !slices.ContainsFunc(h.Plugins, func(p wire.HostPlugin) bool { return p.Name == name }) {
				d.Missing = append(d.Missing, h.Name)
			}
		}
		if len(d.Builds) > 1 || len(d.Missing) > 0 {
			found = append(found, d)
		}
	}
	return found
}

// Watch compares the plugins of the hosts every minute, and logs those that have differed
// for ten minutes, until ctx is done. It does nothing without other hosts.
func (c *Cluster) Watch(ctx context.Context) {
	if !c.cfg.SharedEngine {
		return
	}
	tick := time.Tick(compareEvery)
	for {
		if hosts, err := c.Hosts(ctx); err == nil {
			for _, p := range c.track(hosts.Differences) {
				c.cfg.Logger.Warn("plugins differ between hosts", "plugin", p.File, "problem", p.Error)
			}
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// track records the current differences, and returns the new problems.
func (c *Cluster) track(differences []wire.HostDifference) (news []wire.FileProblem) {
	c.mu.Lock()
	defer c.mu.Unlock()

	now, since, before := time.Now(), map[string]time.Time{}, c.problems
	c.problems = nil
	for _, d := range differences {
		began, known := c.since[d.Plugin]
		if !known {
			began = now
		}
		since[d.Plugin] = began
		if now.Sub(began) < graceTime {
			continue
		}

		problem := wire.FileProblem{File: d.Plugin, Error: "differs between hosts: " + describe(d)}
		c.problems = append(c.problems, problem)
		if !slices.Contains(before, problem) {
			news = append(news, problem)
		}
	}
	c.since = since
	return news
}

func describe(d wire.HostDifference) string {
	var parts []string
	for _, b := range d.Builds {
		digest := b.Digest[:min(len(b.Digest), 12)]
		parts = append(parts, fmt.Sprintf("%s on %s", strings.TrimSpace(b.Version+" "+digest), strings.Join(b.Hosts, ", ")))
	}
	if len(d.Missing) > 0 {
		parts = append(parts, "missing on "+strings.Join(d.Missing, ", "))
	}
	return strings.Join(parts, "; ")
}

// Problems returns the plugins that have differed for ten minutes.
func (c *Cluster) Problems() []wire.FileProblem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.problems)
}

// Warnings returns the problems, in words that are safe to show to anyone.
func (c *Cluster) Warnings() []string {
	if n := len(c.Problems()); n > 0 {
		return []string{fmt.Sprintf("%d plugins differ between hosts: see toolhost hosts", n)}
	}
	return nil
}
