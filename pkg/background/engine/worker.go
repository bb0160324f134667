package engine

import (
	"encoding/json"
	"time"
)

// A WorkerInfo describes a worker that joins.
type WorkerInfo struct {
	TTL   time.Duration // of the lease; 0: DefaultTTL
	Quota Quota         // quota of records, from now on; the zero Quota limits nothing
	Offer Offer         // initial offer, see [Worker.Offer]; the zero Offer covers every run
	// Patience is how long a run in the shared queue waits for a worker that offers it.
	// After that, this worker claims it too, and decides what to do with it.
	Patience time.Duration
}

// An Offer says which runs a worker can start.
type Offer struct {
	Tools  map[string]string // version of each tool that it has; nil: all tools in any version
	Places int               // runs that it works on concurrently; 0: unknown
	About  json.RawMessage   // description of its program for [Engine.Workers]: JSON, or nil
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

// WantedVersion returns the version of the tool that a run must be started with. It
// is "" if any will do: for the first attempt of a run of a schedule, and for a run
// with a state, which continues with a version that was kept.
func (r Run) WantedVersion() string {
	if r.Schedule != "" && r.Attempt == 0 || r.StateSize > 0 {
		return ""
	}
	return r.Version
}

// A WorkerState describes a worker to others.
type WorkerState struct {
	ID        string // never reused
	Offer     Offer
	Since     time.Time // when it joined
	RenewedAt time.Time // its last heartbeat
	TTL       time.Duration
	Live      bool // its lease lasts; otherwise it is dead, and its runs may not have been taken over yet
	Claimed   int  // queued runs that it is about to start
	Running   int  // runs that it is working on
}
