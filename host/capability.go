package host

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
)

// capabilities are the names of the contract. Those this host grants to nobody
// yet are denied, so that a plugin can tell them from a misspelled one.
var capabilities = []string{
	"http", "kv.get", "kv.set", "kv.delete", "kv.list", "tool.call", "secret.exists", "ask",
	"sleep", "checkpoint.save", "checkpoint.load",
}

// maxOp bounds the name of a capability, in bytes.
const maxOp = 64

// capability is the call function of the contract.
func (c *call) capability(mem api.Memory, stack []uint64) int32 {
	name := c.bytes(mem, abi.ImportCall, stack[0], stack[1])
	op := string(name[:min(len(name), maxOp+1)])
	request := c.bytes(mem, abi.ImportCall, stack[2], stack[3])
	c.charge(len(request))
	switch {
	case c.describing:
		return c.refuse(abi.CallDenied, "denied", "a plugin that describes itself may call nothing")
	case op == "sleep":
		return c.sleepCapability(request)
	case op == "checkpoint.save" && c.Checkpoint != nil:
		return c.saveCheckpoint(request)
	case op == "checkpoint.load" && c.Checkpoint != nil:
		return c.loadCheckpoint()
	case op == "checkpoint.save" || op == "checkpoint.load":
		return c.refuse(abi.CallDenied, "denied", noCheckpoint)
	case op == "ask" && c.Policy.Ask:
		return c.askCapability(request)
	case slices.Contains(capabilities, op):
		return c.refuse(abi.CallDenied, "denied", fmt.Sprintf("%s is not granted to this plugin", op))
	}
	message := "this host has no such capability"
	if near := abi.Nearest(op, capabilities); near != "" {
		message += fmt.Sprintf(", did you mean %q?", near)
	}
	return c.refuse(abi.CallUnknown, "unknown", message)
}

// sleepCapability waits for {"ms": n} milliseconds. A sleep that a stop cuts
// short is canceled.
func (c *call) sleepCapability(request []byte) int32 {
	if !c.Policy.Clock {
		return c.refuse(abi.CallDenied, "denied", "sleep needs the clock, which is not granted to this plugin")
	}
	var in struct {
		MS *int64 `json:"ms"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.MS == nil || *in.MS < 0 {
		return c.refuse(abi.CallInvalid, "invalid", `expected {"ms": milliseconds}`)
	}
	c.sleep(time.Duration(min(*in.MS, int64(time.Duration(1<<62)/time.Millisecond))) * time.Millisecond)
	c.check()
	if c.stopping() {
		return c.refuse(abi.CallCanceled, "canceled", "the call is being stopped")
	}
	c.response = []byte("{}")
	return int32(len(c.response))
}

// sleep waits as long as a guest asks, or until its call is asked to stop or
// has to end.
func (c *call) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	c.guest.Idle()
	defer c.compute() // a call that has to end meanwhile ends at its next check
	select {
	case <-timer.C:
	case <-c.Stopping:
	case <-c.ctx.Done():
	}
}

func (c *call) refuse(code int32, name, message string) int32 {
	c.response, _ = json.Marshal(abi.CallFailure{Code: name, Message: message}) // two strings: it cannot fail
	return code
}
