package server

import "github.com/toolhost/toolhost/server/internal/presence"

// Connections lists the clients that have sent requests recently, for operators: List
// returns those that are connected, or have sent a request in the last 30 minutes, at most
// 1,024, the latest request first. Transports call Visit for each request, and Depart when a
// connection has ended. It is safe for concurrent use.
type Connections = presence.Clients

// Connections returns the list of recent clients.
func (s *Service) Connections() *Connections { return &s.connections }
