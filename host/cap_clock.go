package host

import (
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// clockCapability is the real time, which WASI reads, and sleeping. See
// environment.clock.
var clockCapability = flag("clock", "the real time, and sleeping",
	func(n abi.Needs) bool { return n.Clock }, func(g *Grant) *bool { return &g.Clock },
	map[string]operation{"sleep": {
		func(c *call) bool { return c.Policy.Clock }, "sleep needs the clock, which is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", sleepOperation,
	}})

// randomCapability is real randomness, which WASI reads. See environment.config.
var randomCapability = flag("random", "real randomness",
	func(n abi.Needs) bool { return n.Random }, func(g *Grant) *bool { return &g.Random }, nil)

// sleepOperation waits for {"ms": n} milliseconds. A sleep that a stop cuts short
// is canceled.
func sleepOperation(c *call, request []byte) int32 {
	var in struct {
		MS *int64 `json:"ms"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.MS == nil || *in.MS < 0 {
		return c.refuse(abi.CallInvalid, "invalid", `expected {"ms": milliseconds}`)
	}

	c.sleep(time.Duration(min(*in.MS, int64(time.Duration(1<<62)/time.Millisecond))) * time.Millisecond)
	c.meter.check()
	if c.stopping() {
		return c.refuseStopped()
	}
	return c.respond([]byte("{}"))
}

// sleep waits as long as a guest asks, or until its call is asked to stop or has
// to end.
func (c *call) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	c.guest.Idle()
	defer c.guest.Compute() // a call that has to end meanwhile ends at its next check

	select {
	case <-timer.C:
	case <-c.Stopping:
	case <-c.ctx.Done():
	}
}
