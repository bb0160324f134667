package wire

import "time"

// A ClientConnection is a client of the server, as its operator sees it: a connection of MCP
// that began with initialize, or the requests of one session that stand alone. Requests
// that name no session count together for each client program.
type ClientConnection struct {
	Protocol      string    `json:"protocol"`                 // ProtocolMCP or ProtocolHTTP
	Transport     string    `json:"transport"`                // "http", or "stdio"
	Client        string    `json:"client,omitempty"`         // the program, in its own words; empty if it does not say
	ClientVersion string    `json:"client_version,omitempty"` // likewise
	Revision      string    `json:"revision,omitempty"`       // of MCP
	User          string    `json:"user,omitempty"`           // empty: the operator
	Session       string    `json:"session,omitempty"`        // empty: each request has its own
	Since         time.Time `json:"since"`                    // the first request
	LastRequestAt time.Time `json:"last_request_at"`
	InFlight      int       `json:"in_flight"` // requests without an answer: calls, waits and streams
}

// The protocols of connections.
const (
	ProtocolMCP  = "mcp"
	ProtocolHTTP = "http"
)

// Connections is the answer of GET /v1/connections, the latest request first.
type Connections struct {
	Connections []ClientConnection `json:"connections"`
}
