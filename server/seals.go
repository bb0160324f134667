package server

import "github.com/toolhost/toolhost/server/internal/seal"

// Seals signs data that clients carry for a server, and revokes it. Clients can read it,
// but not change it. All hosts of an engine accept each other's seals, and a host those of
// its earlier processes, as long as the engine keeps its runs. A seal is valid for at least
// 24 hours. Seals is safe for concurrent use.
type Seals = seal.Sealer

// ErrSeal reports a text that no host of this engine sealed, or that was sealed so long
// ago that its key is gone.
var ErrSeal = seal.ErrInvalid

// Seals returns the seals of the hosts that share the engine of the service.
func (s *Service) Seals() *Seals { return s.seals }
