package audit

import "time"

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Opened  Kind = "opened"  // a process began to write
	Closed  Kind = "closed"  // a process closed the log
	Lost    Kind = "lost"    // before this line, events could not be written: Count is their number, and Reason says why
	Rotated Kind = "rotated" // a file was removed although its newest event was less than a day old; Count is the number of events removed

	Grant  Kind = "grant"  // grants in force for a plugin: at the start, and after a reload that changed them
	Reload Kind = "reload" // plugins were added, changed or removed

	Call    Kind = "call"    // a direct call has ended
	Spawned Kind = "spawned" // a background run was stored, or approved if it was held
	Ended   Kind = "ended"   // a background run has ended
	Stop    Kind = "stop"    // somebody asked a run to stop
	Missed  Kind = "missed"  // the log may lack the ends of runs that ended before this line

	Asked    Kind = "asked"    // a person was asked to approve a call
	Approved Kind = "approved" // a person approved a call, or a kept approval covered it
	Refused  Kind = "refused"  // a call was not approved

	Egress Kind = "egress" // a request of a plugin to another host

	Schedule Kind = "schedule" // a schedule was created, enabled, disabled, removed or fired: see Action
	Admin    Kind = "admin"    // something was changed or removed: see Action
)

// Kinds lists all kinds.
var Kinds = []Kind{Opened, Closed, Lost, Rotated, Grant, Reload, Call, Spawned, Ended, Stop, Missed, Asked, Approved, Refused, Egress, Schedule, Admin}

// Held is the Outcome of a call whose caller got an answer while the call was still waiting
// for approval. The ID of the event is the id of the run that the call has become.
const Held = "held"

// An Event is one line of the log. Fields that do not apply are left out. Texts longer
// than 1 KiB are cut.
type Event struct {
	Seq  int64     `json:"seq"` // 1 for the first line of a log
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`

	Session string `json:"session,omitempty"`
	User    string `json:"user,omitempty"` // user of an OAuth issuer
	By      string `json:"by,omitempty"`   // requester, if not the session's agent
	ID      string `json:"id,omitempty"`   // id of the call, run, schedule or approval
	Parent  string `json:"parent,omitempty"`
	Tool    string `json:"tool,omitempty"`
	Plugin  string `json:"plugin,omitempty"`
	Digest  string `json:"digest,omitempty"` // SHA-256 of the plugin's file
	Signer  string `json:"signer,omitempty"` // signer of the plugin

	Action  string   `json:"action,omitempty"`  // what was done, such as removed
	Outcome string   `json:"outcome,omitempty"` // how the call or run ended
	Code    string   `json:"code,omitempty"`    // code of the failure
	Reason  string   `json:"reason,omitempty"`  // reason for a failure or an action, in words
	Names   []string `json:"names,omitempty"`   // grants, or the plugins that a reload changed

	Fuel   int64 `json:"fuel,omitempty"`
	Millis int64 `json:"ms,omitempty"` // wall time in milliseconds
	DryRun bool  `json:"dry_run,omitempty"`
	Count  int64 `json:"count,omitempty"`

	// Fields of egress events.
	Method   string `json:"method,omitempty"`
	Host     string `json:"host,omitempty"` // host and port
	Status   int    `json:"status,omitempty"`
	Sent     int64  `json:"sent,omitempty"`     // size of the request body, in bytes
	Received int64  `json:"received,omitempty"` // size of the response body, in bytes

	Prev string `json:"prev"` // SHA-256 of the line before, in hex; zeros in the first line
}

// maxText is the maximum size of each text of an event, in bytes.
const maxText = 1 << 10

// maxNames is the maximum number of names in an event.
const maxNames = 64
