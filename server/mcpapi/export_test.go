package mcpapi

// WithoutDrain is the configuration for tests in a synctest bubble: a guest
// that spins holds up their clock, so that no grace would ever be over.
func (c Config) WithoutDrain() Config {
	c.drain = -1
	return c
}
