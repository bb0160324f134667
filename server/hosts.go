package server

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// Patience is how long a run waits for a host with its version of the tool: hosts that
// share an engine are updated one after the other.
const Patience = 5 * time.Minute

// offer says which runs this host can start, and describes the host. A host without a
// shared engine starts all runs.
func (s *Service) offer() engine.Offer {
	shared := s.cfg.Engine != nil
	var loaded []wire.HostPlugin
	for _, p := range s.registry.Plugins() {
		one := wire.HostPlugin{Name: p.Manifest.Name, Version: p.Manifest.Version}
		if shared {
			one.Digest, _ = p.Digest() // an error: a reload is due
		}
		loaded = append(loaded, one)
	}
	offer := engine.Offer{Places: s.now().cfg.places(), About: s.cluster.About(loaded)}
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
	return s.cluster.Hosts(ctx)
}

// HostWarnings warns, in words for the public, of plugins that have differed between
// hosts for long.
func (s *Service) HostWarnings() []string { return s.cluster.Warnings() }
