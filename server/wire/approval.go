package wire

import "time"

// A WaitingCall is a call that waits until a person has approved it.
type WaitingCall struct {
	TaskID        string    `json:"task_id"` // of the run that it is
	Session       string    `json:"session"`
	By            string    `json:"by,omitempty"` // who asked for it, if not the session's agent
	Tool          string    `json:"tool"`
	Description   string    `json:"description,omitempty"` // of the tool, in the plugin's words
	Plugin        string    `json:"plugin,omitempty"`
	PluginVersion string    `json:"plugin_version,omitempty"`
	ToolVersion   string    `json:"tool_version,omitempty"` // the digest of the plugin's file
	Args          string    `json:"args"`                   // JSON, at most 16 KiB of it
	ArgsCut       bool      `json:"args_cut,omitempty"`     // there is more of the arguments: GET /v1/approvals/{run} has all
	ArgsBytes     int       `json:"args_bytes"`             // of all
	ArgsDigest    string    `json:"args_digest"`            // their SHA-256
	Grants        []string  `json:"grants"`                 // what the plugin may use
	Fingerprint   string    `json:"fingerprint"`            // of the tool's code and grants: give it back with the decision
	Changed       bool      `json:"changed,omitempty"`      // the plugin was replaced or removed: the call can only be refused
	AskedAt       time.Time `json:"asked_at"`
	ExpiresAt     time.Time `json:"expires_at"` // when it is refused
}

// Approvals is a page of the answer of GET /v1/approvals.
type Approvals struct {
	Approvals []WaitingCall `json:"approvals"`      // the oldest first
	Waiting   int           `json:"waiting"`        // how many wait, these and those after them
	Next      string        `json:"next,omitempty"` // the `after` of the next page
}

// Keep says how long an approval holds.
type Keep string

// How long approvals hold. Empty is for this call only.
const (
	KeepSession Keep = "session" // for all calls of the tool in this session, until it ends
	KeepAlways  Keep = "always"  // for all calls of the tool
)

// Decide is the body of POST /v1/approvals/{run}.
type Decide struct {
	Approve     bool   `json:"approve"`
	Keep        Keep   `json:"keep,omitempty" schema:"enum=session|always"` // as long as the plugin's file and grants do not change
	Fingerprint string `json:"fingerprint,omitempty"`                       // as it was shown; 409 if it is another one now
	Reason      string `json:"reason,omitempty" schema:"maxLength=200"`     // of a refusal, for the agent
}

// A KeptApproval is an approval of all calls of a tool.
type KeptApproval struct {
	Tool    string    `json:"tool"`
	Session string    `json:"session,omitempty"` // absent: in all sessions
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	InForce bool      `json:"in_force"` // the plugin and its grants are those that were approved
}

// KeptApprovals is the answer of GET /v1/kept_approvals.
type KeptApprovals struct {
	Kept []KeptApproval `json:"kept"` // by session and tool
}
