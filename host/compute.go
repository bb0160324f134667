package host

// busyProcessors is what a call waited for that had no processor until it ended.
const busyProcessors = "other calls of at least its urgency have all processors: try again when some have ended, or give the host more processors"

// compute waits until the guest of a call may compute. Its error is why the call
// ended first.
//
// A call that was made within another does not wait: it runs while the other one
// is in a host function.
func (c *call) compute() error {
	if c.host.cpus.enter(&c.guest, c.outer != nil) {
		return nil
	}
	return c.awaitSlot()
}

// idle gives back what compute got.
func (c *call) idle() { c.host.cpus.leave(&c.guest) }

// giveWay lets other guests compute if it is their turn. A call that ended while
// it waited ends at its next check.
func (c *call) giveWay() {
	if !c.host.cpus.yield(&c.guest) {
		_ = c.awaitSlot()
	}
}

// lend is called before a function that may wait for long, and reclaim after it:
// others compute meanwhile. Both may be called where the guest does not compute.
func (c *call) lend() { c.host.cpus.lend(&c.guest) }

// reclaim ends lend. A call that ended while it waited ends at its next check.
func (c *call) reclaim() {
	if !c.host.cpus.reclaim(&c.guest) {
		_ = c.compute()
	}
}

// awaitSlot waits for the slot that the guest has asked for. A guest that is
// asked to stop meanwhile goes before others, since it has to compute to do so.
func (c *call) awaitSlot() error {
	stopping := c.Stopping
	for {
		select {
		case <-c.guest.slot:
			return nil
		case <-stopping:
			stopping = nil
			c.host.cpus.hurry(&c.guest)
		case <-c.ctx.Done():
			c.idle()
			return c.interrupted()
		}
	}
}

// await waits for another goroutine of the host, and lets others compute
// meanwhile.
func (c *call) await(done <-chan struct{}) error {
	c.idle()
	select {
	case <-done:
		return c.compute()
	case <-c.ctx.Done():
		return c.interrupted()
	}
}
