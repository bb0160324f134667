package wire

import "time"

// A ClientConnection is a client of the server, as shown to its operator: either an MCP
// connection that began with initialize, or all other requests of one client program in
// one session. Requests without a session are grouped by user and client program.
type ClientConnection struct {
	Protocol      string    `json:"protocol"`                 // ProtocolMCP or ProtocolHTTP
	Transport     string    `json:"transport"`                // "http" or "stdio"
	Client        string    `json:"client,omitempty"`         // name that the program reports; empty if it reports none
	ClientVersion string    `json:"client_version,omitempty"` // version that the program reports
	Revision      string    `json:"revision,omitempty"`       // version of the MCP protocol
	User          string    `json:"user,omitempty"`           // empty for the operator
	Session       string    `json:"session,omitempty"`        // empty if the requests name no session
	Since         time.Time `json:"since"`                    // time of the first request
	LastRequestAt time.Time `json:"last_request_at"`
	InFlight      int       `json:"in_flight"` // requests in progress: calls, waits and streams
}

// The protocols of connections.
const (
	ProtocolMCP  = "mcp"
	ProtocolHTTP = "http"
)

// Connections is the response body of GET /v1/connections: most recent request first.
type Connections struct {
	Connections []ClientConnection `json:"connections"`
}
