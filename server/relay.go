package server

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// The bounds of a Relay.
const (
	relayLife  = 5 * time.Minute
	relayCount = 256     // messages to one name
	relayBytes = 4 << 20 // bytes of messages to one name
)

// A Relay passes messages between the hosts that share an engine. Every host that reads a
// name gets its messages, which are kept for 5 minutes. It is safe for concurrent use.
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

// Send sends a message to a name. Beyond 256 messages or 4 MiB the error is an
// *[engine.LimitError].
func (r *Relay) Send(ctx context.Context, to string, message []byte) error {
	v := engine.Value{Data: message, Expires: time.Now().Add(relayLife)}
	_, err := r.engine.PutValue(context.WithoutCancel(ctx), relayScope(to), v, engine.ValueLimit{Count: relayCount, Bytes: relayBytes})
	return err
}

// Receive returns the messages to a name that follow the one with the Key after.
func (r *Relay) Receive(ctx context.Context, to, after string) ([]engine.Value, error) {
	return r.engine.Values(ctx, relayScope(to), after, 0, true)
}
