package host

// serialSlot is the slot of a session among the serial calls to a module.
type serialSlot struct {
	module  *Module
	session string
}

// acquireSerial waits for the slot of the session, which only one serial call holds at
// a time. A nested call is refused where waiting could deadlock: if one of its callers
// holds that slot, or holds any other serial slot while this one is taken.
func (c *call) acquireSerial() error {
	holds := false
	for o := c.Caller; o != nil; o = o.Outer {
		if o.Serial == (serialSlot{c.module, c.Session}) {
			return &BusyError{"the plugin " + c.Plugin + " runs one call of a session at a time, and the call that waits for this one is of it: this one would wait for itself"}
		}
		holds = holds || o.Serial != nil
	}

	if !holds {
		return c.wait(c.module.serial, c.Session)
	}
	if !c.module.serial.TryAcquire(c.Session) {
		return &BusyError{c.module.serial.full}
	}
	return nil
}

// BusyError says why a nested call was refused: it would wait for a third call, which
// might never end.
type BusyError struct{ Why string }

func (e *BusyError) Error() string { return e.Why }
