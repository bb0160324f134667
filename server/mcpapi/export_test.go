package mcpapi

// WithoutDrain returns the configuration for tests in a synctest bubble: a guest that
// spins stops its clock, so that no grace period would ever end.
func (c Config) WithoutDrain() Config {
	c.drain = -1
	return c
}

// What clients may ask for at once.
const (
	MaxSessions         = maxConnections
	MaxSessionsOfClient = maxConnectionsOfClient
	MaxCalls            = maxCalls
	MaxCallsOfClient    = maxCallsOfClient
	MaxInitialize       = maxInitialize
	MaxMeta             = maxMeta
)

// Sessions returns the number of sessions that began with initialize.
func (h *Handler) Sessions() int {
	n := 0
	for s := range h.server.Sessions() {
		if s.ID() != "" {
			n++
		}
	}
	return n
}

// DecodeHeader reads a value that may be in base64.
var DecodeHeader = decodeHeader

// TaskOf returns the task that the parameters of a method name, or "".
func TaskOf(params any) string {
	if p, ok := params.(*taskParams); ok && p != nil {
		return p.TaskID
	}
	return ""
}
