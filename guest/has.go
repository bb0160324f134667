package guest

// Has reports whether needs are granted to this call, such as those in Needs.Optional. A
// call of a tool with the hint Readonly has nothing that writes. Ask may fail although it
// is granted, because nobody is there. Has returns false for more than 16 needs, for those
// that a manifest could not have, and for needs with an Optional.
func (c *Call) Has(n Needs) bool {
	var out struct {
		Granted bool `json:"granted"`
	}
	err := c.Host("granted", n, &out)
	return err == nil && out.Granted
}
