package host

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// clockOperations is sleeping. The time itself is read through WASI.
var clockOperations = map[string]operation{"sleep": {
	func(c *call) bool { return c.Policy.Clock }, "sleep needs the clock, which is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", sleepOperation,
}}

// sleepOperation waits for {"ms": n} milliseconds. An interrupted sleep is
// canceled.
func sleepOperation(c *call, request []byte) (work, int32) {
	var in struct {
		MS *int64 `json:"ms"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.MS == nil || *in.MS < 0 {
		return nil, c.refuse(abi.CallInvalid, "invalid", `expected {"ms": milliseconds}`)
	}

	d := milliseconds(*in.MS)
	return func(ctx context.Context) end {
		slept := c.rest(ctx, d)
		return end{cut: !slept && ctx.Err() != nil, finish: func() int32 {
			if !slept || c.stopping() {
				return c.refuseCanceled()
			}
			return c.respond([]byte("{}"))
		}}
	}, 0
}

// sleep is rest for the guest itself, which gives up its processor meanwhile.
func (c *call) sleep(d time.Duration) {
	c.guest.Idle()
	defer c.guest.Compute() // a call that was ended meanwhile ends at its next check
	c.rest(&c.ctx, d)
}

// rest waits for d, or until the call is asked to stop or ctx is done. It reports
// whether all of d has passed.
func (c *call) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-c.Stopping:
	case <-ctx.Done():
	}
	return false
}
