package guest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// Host asks the host for one of its capabilities, by the name and with the
// request the host documents. The response is decoded into a pointer, or
// dropped if that is nil. A host that refuses or fails is a [*HostError].
func (c *Call) Host(op string, request, response any) error {
	data, err := marshal(request)
	if err != nil {
		return err
	}
	c.calling.Lock()
	code := c.host.Call(op, data)
	answer := c.read(abi.FieldResponse)
	c.calling.Unlock()
	if code < 0 {
		return c.failure(op, code, answer)
	}
	if response == nil {
		return nil
	}

	return json.Unmarshal(answer, response)
}

func (c *Call) failure(op string, code int32, answer []byte) error {
	var f abi.CallFailure
	if json.Unmarshal(answer, &f) != nil || f.Code == "" {
		f = abi.CallFailure{Code: "failed", Message: "the host did not say why"}
	}
	if code == abi.CallCanceled {
		f.Code = "canceled"
		c.canceled.Store(true)
	}
	return &HostError{Op: op, Code: f.Code, Message: f.Message}
}

// Names of host capabilities that have a method of their own.
const (
	opSleep          = "sleep"
	opCheckpointSave = "checkpoint.save"
	opCheckpointLoad = "checkpoint.load"
)

// Sleep waits, to the next millisecond, and returns early with an error that
// matches [ErrCanceled] if the call is stopped. The plugin needs the clock for
// it: without, the error matches [ErrDenied].
func (c *Call) Sleep(d time.Duration) error {
	if d <= 0 {
		return c.Err()
	}
	request := struct {
		MS int64 `json:"ms"`
	}{int64((d-1)/time.Millisecond) + 1}
	return c.Host(opSleep, request, nil)
}

type checkpoint struct {
	Data []byte `json:"data,omitempty"`
}

// SaveCheckpoint keeps data, at most 1 MiB, with a background run, for its next
// attempt to resume from. It replaces what was kept before, and is durable when
// it returns nil. It costs a million units of fuel, and as long as a disk takes
// to write: save every few seconds of work, not at every step.
//
// A call that is not run in the background is never run again. Nothing is kept
// then, and that is no error.
func (c *Call) SaveCheckpoint(data []byte) error {
	return unlessDenied(c.Host(opCheckpointSave, checkpoint{data}, nil))
}

// LoadCheckpoint returns what an earlier attempt of the run saved last; nil if
// none did, or if the call is not run in the background.
func (c *Call) LoadCheckpoint() ([]byte, error) {
	var saved checkpoint
	err := c.Host(opCheckpointLoad, struct{}{}, &saved)
	return saved.Data, unlessDenied(err)
}

// unlessDenied drops the error of a capability a tool can do without.
func unlessDenied(err error) error {
	if errors.Is(err, ErrDenied) {
		return nil
	}
	return err
}
