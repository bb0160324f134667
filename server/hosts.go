package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	// Patience is how long a run waits for a host with its version of the tool: hosts
	// that share an engine are updated one after the other.
	Patience = 5 * time.Minute

	differAtMost = 10 * time.Minute // then operators are notified that plugins differ
	hostsEvery   = time.Minute      // how often plugins are compared
)

// hostAbout is what a host publishes about itself.
type hostAbout struct {
	Process string            `json:"process"` // random
	Name    string            `json:"name"`
	Version string            `json:"version,omitempty"`
	Plugins []wire.HostPlugin `json:"plugins"`
}

// offer says which runs this host can start, and describes the host. A host without a
// shared engine starts all runs.
func (x executor) offer() engine.Offer {
	s := x.service
	shared := s.cfg.Engine != nil
	own := hostAbout{Process: s.process, Name: s.cfg.Name, Version: s.cfg.Version, Plugins: []wire.HostPlugin{}}
	for _, p := range s.registry.Plugins() {
		one := wire.HostPlugin{Name: p.Manifest.Name, Version: p.Manifest.Version}
		if shared {
			one.Digest, _ = p.Digest() // an error: a reload is due
		}
		own.Plugins = append(own.Plugins, one)
	}
	slices.SortFunc(own.Plugins, func(a, b wire.HostPlugin) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Digest, b.Digest))
	})

	text, _ := json.Marshal(own) // strings
	offer := engine.Offer{Places: s.now().cfg.places(), About: text}
	if !shared {
		return offer
	}
	offer.Tools = map[string]string{}
	for _, tool := range s.catalog.Tools() {
		if version, err := tool.Version(); err == nil {
			offer.Tools[tool.Name] = version
		}
	}
	return offer
}

// Hosts returns the hosts that share the engine of runs, including this one.
func (s *Service) Hosts(ctx context.Context) (wire.Hosts, error) {
	if s.closed.Load() {
		return wire.Hosts{}, reason.ErrShutdown
	}
	workers, err := s.engine.Workers(ctx)
	if err != nil {
		return wire.Hosts{}, err
	}

	out := wire.Hosts{Hosts: []wire.Host{}}
	for _, w := range workers {
		var told hostAbout
		_ = json.Unmarshal(w.Offer.About, &told) // a program of another kind says nothing
		host := wire.Host{
			HostID: w.ID, Name: told.Name, Version: told.Version, State: wire.HostLost, Self: told.Process == s.process, Since: w.Since, RenewedAt: w.RenewedAt,
			Running: w.Running, Claimed: w.Claimed, PerHost: w.Offer.Places, Plugins: told.Plugins,
		}
		if w.Live {
			host.State = wire.HostLive
		}
		out.Hosts = append(out.Hosts, host)
	}
	out.Differences = differences(out.Hosts)
	return out, nil
}

// differences returns the plugins that are not the same on all live hosts.
func differences(hosts []wire.Host) []wire.HostDifference {
	live := slices.DeleteFunc(slices.Clone(hosts), func(h wire.Host) bool { return h.State != wire.HostLive })
	plugins := map[string]map[wire.HostPlugin][]string{}
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

// drift tracks since when plugins differ between hosts.
type drift struct {
	mu    sync.Mutex
	since map[string]time.Time // by plugin
	told  []wire.FileProblem   // plugins that have differed for long
}

// followHosts records plugins that differ for long, until ctx is done.
func (x executor) followHosts(ctx context.Context) {
	s := x.service
	ticker := time.NewTicker(hostsEvery)
	defer ticker.Stop()
	for {
		hosts, err := s.Hosts(ctx)
		if err == nil {
			for _, p := range s.drift.note(hosts.Differences, time.Now()) {
				s.log.Warn("plugins differ between hosts", "plugin", p.File, "problem", p.Error)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// note records the current differences, and returns those that operators have not been
// notified of.
func (d *drift) note(differences []wire.HostDifference, now time.Time) (news []wire.FileProblem) {
	d.mu.Lock()
	defer d.mu.Unlock()

	since, before := map[string]time.Time{}, d.told
	d.told = nil
	for _, one := range differences {
		began, known := d.since[one.Plugin]
		if !known {
			began = now
		}
		since[one.Plugin] = began
		if now.Sub(began) < differAtMost {
			continue
		}

		problem := wire.FileProblem{File: one.Plugin, Error: "differs between hosts: " + describeDifference(one)}
		d.told = append(d.told, problem)
		if !slices.Contains(before, problem) {
			news = append(news, problem)
		}
	}
	d.since = since
	return news
}

// problems returns the plugins that have differed for long.
func (d *drift) problems() []wire.FileProblem {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

// HostWarnings warns, in words for the public, of plugins that have differed between
// hosts for long.
func (s *Service) HostWarnings() []string {
	if n := len(s.drift.problems()); n > 0 {
		return []string{fmt.Sprintf("%d plugins differ between hosts: see toolhost hosts", n)}
	}
	return nil
}

func describeDifference(d wire.HostDifference) string {
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

// hostName returns the name of this host for people.
func hostName(configured string) string {
	name, _ := os.Hostname() // else empty
	return cmp.Or(configured, name, "unnamed")
}
