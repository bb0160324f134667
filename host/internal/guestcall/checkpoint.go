package guestcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/host/internal/meter"
)

// MaxCheckpoint is the maximum size of a checkpoint, in bytes.
const MaxCheckpoint = 1 << 20

// saveCost is the extra cost of saving a checkpoint, as a number of bytes: a
// million units of fuel. The host waits for its disk, so a guest that saves
// all the time has to pay for it.
const saveCost = 1_000_000 * meter.BytesPerUnit

// noCheckpoint is the error text for a call without checkpoints.
const noCheckpoint = "only a background run has checkpoints: this call is not run again"

// Checkpoint is the resume point of a background run. One attempt saves it for the
// next.
type Checkpoint struct {
	// Load returns the last checkpoint of an earlier attempt, or nil.
	Load func() []byte
	// Save stores data durably before it returns nil. It may wait for its storage until ctx
	// is done, which happens when the call ends or is asked to stop. An error that matches
	// ErrDenied means that the call is not a run yet. The plugin does not see any other
	// error: Save should log it.
	Save func(ctx context.Context, data []byte) error
}

// checkpointOperations save and load the resume point of a run.
var checkpointOperations = map[string]Operation{
	"checkpoint.save": {hasCheckpoint, noCheckpoint, atOnce(saveCheckpoint)},
	"checkpoint.load": {hasCheckpoint, noCheckpoint, atOnce(loadCheckpoint)},
}

func hasCheckpoint(c *Call) bool { return c.Checkpoint != nil }

// checkpointData is the request of checkpoint.save and the response of
// checkpoint.load. Data is base64 in JSON.
type checkpointData struct {
	Data []byte `json:"data,omitempty"`
}

// saveCheckpoint stores {"data": base64} with the run.
func saveCheckpoint(c *Call, request []byte) int32 {
	tooLarge := len(request) > 2*MaxCheckpoint // base64 takes four thirds
	var in checkpointData
	if !tooLarge && json.Unmarshal(request, &in) != nil {
		return c.Refuse(abi.CallInvalid, "invalid", `expected {"data": base64}`)
	}
	if tooLarge || len(in.Data) > MaxCheckpoint {
		return c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("a checkpoint has at most %d bytes", MaxCheckpoint))
	}

	c.Meter.Charge(saveCost)
	c.Guest.Lend()
	until, done := c.untilStopped(c.Context)
	err := c.Checkpoint.Save(until, in.Data)
	done()
	if err == nil {
		err = c.Suspension.Saved()
	}
	c.Guest.Reclaim()
	switch {
	case errors.Is(err, grant.ErrDenied):
		return c.deny(noCheckpoint)
	case err != nil:
		c.Meter.Check() // a run that was lost ends here
		if c.IsStopping() {
			return c.RefuseStopped()
		}
		return c.Refuse(abi.CallFailed, "failed", "the checkpoint could not be stored")
	}

	return c.respond([]byte("{}"))
}

// loadCheckpoint answers {"data": base64}, or {} without a checkpoint.
func loadCheckpoint(c *Call, _ []byte) int32 {
	return c.respond(JSON(checkpointData{c.Checkpoint.Load()}))
}

// JSON encodes a value made of strings, numbers and bytes, which cannot fail.
func JSON(v any) []byte {
	data, _ := json.Marshal(v)
	return data
}
