package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// textMore is how an agent sees the rest of a list that was cut.
const textMore = "check_background list=true"

// texts are what package background shows to agents.
var texts = background.Texts{
	Internal: abi.InternalMessage,
	More:     textMore,
	Quiet:    "nothing new. Wait with wait_seconds, or continue with other work.",
	Notified: "nothing new; you will be notified. Wait with wait_seconds, or continue with other work.",
}

// limitText returns what an agent is shown of a limit that refused a run.
func limitText(e *engine.LimitError) string {
	active := strings.Join(e.Active, ", ")
	switch {
	case errors.Is(e.Err, background.ErrHostLimit):
		return fmt.Sprintf("this host already runs the maximum of %d background runs; try again when one has ended", e.Max)
	case errors.Is(e.Err, engine.ErrRecordLimit):
		return fmt.Sprintf("there is no room for the record of another background run or schedule: records may take %d bytes; "+
			"check the runs that have ended, as a record is evicted only when the end of its run was seen, or have the operator raise background.record_quota", e.Max)
	case errors.Is(e.Err, engine.ErrOwnerLimit):
		return fmt.Sprintf("your sessions together already have the maximum of %d background runs; wait for one to end or stop one", e.Max)
	case errors.Is(e.Err, engine.ErrParkedLimit):
		return fmt.Sprintf("this session already has the maximum of %d calls that continued in the background (%s); wait for one to end or stop one", e.Max, active)
	case errors.Is(e.Err, engine.ErrScheduleLimit):
		return fmt.Sprintf("this session already has the maximum of %d active schedules (%s); stop one first", e.Max, active)
	}

	return fmt.Sprintf("this session already has the maximum of %d active background runs (%s); wait for one to end or stop one", e.Max, active)
}
