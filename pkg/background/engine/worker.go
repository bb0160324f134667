package engine

import (
	"encoding/json"
	"time"
)

// A WorkerInfo describes a worker that joins.
type WorkerInfo struct {
	TTL   time.Duration // of its lease; 0: DefaultTTL
	Quota Quota         // of records, from now on; the zero Quota bounds nothing
	Offer Offer         // until [Worker.Offer] changes it; the zero Offer is for every run
	// Patience is how long a run in the shared queue waits for a worker that offers it.
	// After that, this worker claims it too, and decides what becomes of it.
	Patience time.Duration
}

// An Offer says which runs a worker can start.
type Offer struct {
	Tools  map[string]string // the version of each tool that it has; nil: each tool in any version
	Places int               // runs that it works on at the same time; 0: none are told
	About  json.RawMessage   // what its program says of itself, for [Engine.Workers]: JSON, or nil
}

// Takes reports whether the offer is for a run.
func (o Offer) Takes(r Run) bool {
	if o.Tools == nil {
		return true
	}
	version, has := o.Tools[r.Tool]
	wanted := r.WantedVersion()
	return has && (wanted == "" || wanted == version)
}

// WantedVersion is the version of its tool that a run is started with; "" if any will
// do: for a first attempt that a schedule fired, and for a run with a state, which
// continues with a version that was kept.
func (r Run) WantedVersion() string {
	if r.Schedule != "" && r.Attempt == 0 || r.StateSize > 0 {
		return ""
	}
	return r.Version
}

// A WorkerState is what others know of a worker.
type WorkerState struct {
	ID        string // never used again
	Offer     Offer
	Since     time.Time // when it joined
	RenewedAt time.Time // its last heartbeat
	TTL       time.Duration
	Live      bool // its lease lasts; else it is dead, and its runs may not have been taken over yet
	Claimed   int  // queued runs that it is about to start
	Running   int  // runs that it works on
}
