package host

import "github.com/toolhost/toolhost/host/internal/meter"

// observe lets the caller follow the usage of a call and its nested calls, if Call.Used
// is set.
func (c *call) observe() {
	if c.Used != nil || c.Caller != nil { // a nested call shares its caller's fuel
		c.meter.Live = new(meter.Live)
	}
	if c.Used != nil {
		c.Used(c.inner.UsedSoFar)
	}
}
