package engine

import (
	"encoding/json"
	"time"
)

// A WorkerInfo describes a worker that joins.
type WorkerInfo struct {
	TTL   time.Duration // time for which the lease lasts after a renewal; 0: DefaultTTL
	Quota Quota         // quota of records, which replaces the engine's; the zero Quota limits nothing
	Offer Offer         // initial offer, see [Worker.Offer]; the zero Offer covers every run
	// Patience is the time that a run in the shared queue waits for a worker that offers it.
	// After that, this worker may claim it even if it does not offer it.
	Patience time.Duration
}

// An Offer says which runs a worker can start.
type Offer struct {
	Tools  map[string]string // versions of the worker's tools by name; nil: all tools, in any version
	Places int               // number of runs that the worker executes concurrently; 0: unknown
	About  json.RawMessage   // description of the worker's program for [Engine.Workers]: JSON, or nil
}

// Takes reports whether the offer covers a run.
func (o Offer) Takes(r Run) bool {
	if o.Tools == nil {
		return true
	}
	version, has := o.Tools[r.Tool]
	wanted := r.WantedVersion()
	return has && (wanted == "" || wanted == version)
}

// WantedVersion returns the version of the tool with which a run must be started. It is
// "" if any version will do: for the first attempt of a run of a schedule, and for a run
// with a state, which continues with a version that was kept.
func (r Run) WantedVersion() string {
	if r.Schedule != "" && r.Attempt == 0 || r.StateSize > 0 {
		return ""
	}
	return r.Version
}

// A WorkerState describes a worker to others.
type WorkerState struct {
	ID        string // id of the worker, which is never reused
	Offer     Offer
	Since     time.Time // time at which it joined
	RenewedAt time.Time // time of its last heartbeat
	TTL       time.Duration
	Live      bool // whether its lease is valid; otherwise it is dead, and its runs may not have been taken over yet
	Claimed   int  // number of queued runs that it is about to start
	Running   int  // number of runs that it is working on
}
