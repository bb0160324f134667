package guestcall

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// clockOperations lets the guest sleep. The time itself is read through WASI.
var clockOperations = map[string]Operation{"sleep": {
	func(c *Call) bool { return c.Grant.Clock }, "sleep needs the clock, which is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", sleepOperation,
}}

// sleepOperation waits for {"ms": n} milliseconds. An interrupted sleep is
// canceled.
func sleepOperation(c *Call, request []byte) (Work, int32) {
	var in struct {
		MS *int64 `json:"ms"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.MS == nil || *in.MS < 0 {
		return nil, c.Refuse(abi.CallInvalid, "invalid", `expected {"ms": milliseconds}`)
	}

	d := Milliseconds(*in.MS)
	return func(ctx context.Context) End {
		slept := c.Rest(ctx, d)
		return End{Cut: !slept && ctx.Err() != nil, Finish: func() int32 {
			if !slept || c.IsStopping() {
				return c.RefuseCanceled()
			}
			return c.respond([]byte("{}"))
		}}
	}, 0
}

// Rest waits for d, or until the call is asked to stop or ctx is done. It reports
// whether all of d has passed.
func (c *Call) Rest(ctx context.Context, d time.Duration) bool {
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

func Milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(time.Duration(1<<62)/time.Millisecond))) * time.Millisecond
}
