// Package cluster describes the hosts that share an engine for background runs to each other,
// and finds plugins that differ between them.
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// Config describes this host.
type Config struct {
	Process      string // random id of this process
	Name         string // display name; empty means the name of the machine
	Version      string // version of the program
	SharedEngine bool   // whether other hosts may share the engine
	Workers      Workers
	Logger       *slog.Logger
}

// Workers lists the workers of an engine: one for each host.
type Workers interface {
	Workers(ctx context.Context) ([]engine.WorkerState, error)
}

// A Cluster is the group of hosts that share an engine, including this one. It is safe for
// concurrent use.
type Cluster struct {
	cfg Config

	mu       sync.Mutex
	since    map[string]time.Time // when plugins began to differ, by name
	problems []wire.FileProblem   // plugins that have differed for a long time
}

// New returns the Cluster of a host.
func New(cfg Config) *Cluster {
	machine, _ := os.Hostname() // else empty
	cfg.Name = cmp.Or(cfg.Name, machine, "unnamed")
	return &Cluster{cfg: cfg}
}

// A description is what a host publishes about itself.
type description struct {
	Process string            `json:"process"`
	Name    string            `json:"name"`
	Version string            `json:"version,omitempty"`
	Plugins []wire.HostPlugin `json:"plugins"`
}

// About returns the description of this host and its plugins that other hosts get, for
// [engine.Offer].
func (c *Cluster) About(plugins []wire.HostPlugin) json.RawMessage {
	plugins = append([]wire.HostPlugin{}, plugins...)
	slices.SortFunc(plugins, func(a, b wire.HostPlugin) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Digest, b.Digest))
	})
	text, _ := json.Marshal(description{c.cfg.Process, c.cfg.Name, c.cfg.Version, plugins}) // strings
	return text
}

// Hosts returns the hosts, and the plugins that differ between them.
func (c *Cluster) Hosts(ctx context.Context) (wire.Hosts, error) {
	workers, err := c.cfg.Workers.Workers(ctx)
	if err != nil {
		return wire.Hosts{}, err
	}

	hosts := []wire.Host{}
	for _, w := range workers {
		var d description
		_ = json.Unmarshal(w.Offer.About, &d) // a program of another kind says nothing
		host := wire.Host{
			HostID: w.ID, Name: d.Name, Version: d.Version, State: wire.HostLost, Self: d.Process == c.cfg.Process, Since: w.Since, RenewedAt: w.RenewedAt,
			Running: w.Running, Claimed: w.Claimed, PerHost: w.Offer.Places, Plugins: d.Plugins,
		}
		if w.Live {
			host.State = wire.HostLive
		}
		hosts = append(hosts, host)
	}
	return wire.Hosts{Hosts: hosts, Differences: differences(hosts)}, nil
}

// Processes returns the ids of the live hosts' processes.
func (c *Cluster) Processes(ctx context.Context) (map[string]bool, error) {
	workers, err := c.cfg.Workers.Workers(ctx)
	live := map[string]bool{}
	for _, w := range workers {
		var d description
		if w.Live && json.Unmarshal(w.Offer.About, &d) == nil {
			live[d.Process] = true
		}
	}
	return live, err
}
