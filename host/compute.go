package host

// busyProcessors is what a call waited for that had no processor until it ended.
const busyProcessors = "other calls of at least its urgency have all processors: retry when some have ended, or give the host more processors"

// compute waits until the guest of a call may compute. Its error is why the call
// ended first.
func (c *call) compute() error {
	if c.guest.Compute() {
		return nil
	}
	return c.interrupted()
}

// await waits for another goroutine of the host, and lets others compute
// meanwhile.
func (c *call) await(done <-chan struct{}) error {
	c.guest.Idle()
	select {
	case <-done:
		return c.compute()
	case <-c.ctx.Done():
		return c.interrupted()
	}
}
