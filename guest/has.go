package guest

// Has reports whether needs are granted to this call, such as those in Needs.Optional. A
// tool with the hint Readonly is never granted write access. Ask may fail even if it is
// granted, when no user is present. Has returns false for more than 16 needs, for needs
// that are invalid in a manifest, and for needs with an Optional.
func (c *Call) Has(n Needs) bool {
	var out struct {
		Granted bool `json:"granted"`
	}
	err := c.Host("granted", n, &out)
	return err == nil && out.Granted
}
