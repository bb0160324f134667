package guest

import (
	"encoding/json"
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

// SaveCheckpoint keeps data with a background run, for its next attempt to
// resume from. It replaces what was kept before.
func (c *Call) SaveCheckpoint(data []byte) error {
	return c.Host(opCheckpointSave, checkpoint{data}, nil)
}

// LoadCheckpoint returns what an earlier attempt of the run has saved, or nil.
func (c *Call) LoadCheckpoint() ([]byte, error) {
	var saved checkpoint
	err := c.Host(opCheckpointLoad, struct{}{}, &saved)
	return saved.Data, err
}
