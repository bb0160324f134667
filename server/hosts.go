package server

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/seal"
	"github.com/toolhost/toolhost/server/wire"
)

// Patience is how long a run waits for a host that has the version of the tool that the run
// needs: hosts that share an engine are updated one after the other.
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

// Hosts returns the hosts that share the engine for background runs, including this one.
func (s *Service) Hosts(ctx context.Context) (wire.Hosts, error) {
	if s.closed.Load() {
		return wire.Hosts{}, reason.ErrShutdown
	}
	return s.cluster.Hosts(ctx)
}

// HostWarnings returns warnings about plugins that have differed between hosts for some
// time. Their text is safe to show to anyone.
func (s *Service) HostWarnings() []string { return s.cluster.Warnings() }

// The bounds of a Relay.
const (
	relayLife  = 5 * time.Minute
	relayCount = 256     // maximum number of messages kept for one name
	relayBytes = 4 << 20 // maximum size of the messages kept for one name, in bytes
)

// A Relay passes messages between the hosts that share an engine. A message is sent to a name,
// and kept for 5 minutes. Every host that reads the name gets it. A Relay is safe for
// concurrent use.
type Relay struct{ engine engine.Engine }

// Relay returns the relay of the service's engine. It is nil if the engine belongs to
// this service alone, so that there are no other hosts.
func (s *Service) Relay() *Relay {
	if s.cfg.Engine == nil {
		return nil
	}
	return &Relay{s.engine}
}

func relayScope(to string) engine.Scope { return engine.Scope{Name: "relay:" + to} }

// Send sends a message to a name. The error is an *[engine.LimitError] if more than 256
// messages or 4 MiB would be kept for the name.
func (r *Relay) Send(ctx context.Context, to string, message []byte) error {
	v := engine.Value{Data: message, Expires: time.Now().Add(relayLife)}
	_, err := r.engine.PutValue(context.WithoutCancel(ctx), relayScope(to), v, engine.ValueLimit{Count: relayCount, Bytes: relayBytes})
	return err
}

// Receive returns the messages to a name that were sent after the one whose Key is the
// parameter after; if after is empty, it returns all.
func (r *Relay) Receive(ctx context.Context, to, after string) ([]engine.Value, error) {
	return r.engine.Values(ctx, relayScope(to), after, 0, true)
}

// Seals signs data that clients carry for a server, and revokes it. Clients can read it, but
// not change it. All hosts of an engine accept each other's seals. If the engine keeps its
// runs beyond the life of a process, a host also accepts the seals of its earlier processes. A
// seal is valid for at least 24 hours. Seals is safe for concurrent use.
type Seals = seal.Sealer

// ErrSeal reports a text that no host of this engine sealed, or that was sealed so long
// ago that its key is gone.
var ErrSeal = seal.ErrInvalid

// Seals returns the seals of the hosts that share the engine of the service.
func (s *Service) Seals() *Seals { return s.seals }
