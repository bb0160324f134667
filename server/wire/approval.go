package wire

import "time"

// A WaitingCall is a call that waits for a person's approval.
type WaitingCall struct {
	TaskID         string    `json:"task_id"` // id of the run that holds the call
	Session        string    `json:"session"`
	By             string    `json:"by,omitempty"`     // the requester, unless it is the session's agent
	Caller         string    `json:"caller,omitempty"` // the tool that makes the call; absent if an agent or a person makes it
	Tool           string    `json:"tool"`
	Description    string    `json:"description,omitempty"` // description of the tool, as written by the plugin
	Plugin         string    `json:"plugin,omitempty"`
	PluginVersion  string    `json:"plugin_version,omitempty"`
	ToolVersion    string    `json:"tool_version,omitempty"`    // digest of the plugin's file
	Args           string    `json:"args"`                      // the arguments as JSON; in lists, at most the first 16 KiB
	ArgsCut        bool      `json:"args_cut,omitempty"`        // args is cut off: GET /v1/approvals/{run} returns all of it
	ArgsBytes      int       `json:"args_bytes"`                // size of the complete arguments
	ArgsDigest     string    `json:"args_digest"`               // SHA-256 of the complete arguments, hexadecimal
	ArgsIncomplete bool      `json:"args_incomplete,omitempty"` // secret arguments are left out: they are not stored, and the call ends when its caller ends
	Grants         []string  `json:"grants"`                    // capabilities granted to the plugin
	Fingerprint    string    `json:"fingerprint"`               // identifies the tool's code and grants: send it with the decision
	Changed        bool      `json:"changed,omitempty"`         // the plugin or its grants changed, or the tool is gone: the call can only be refused
	AskedAt        time.Time `json:"asked_at"`
	ExpiresAt      time.Time `json:"expires_at"` // when the call is refused if nobody has decided
}

// Approvals is the response body of GET /v1/approvals: a page of waiting calls.
type Approvals struct {
	Approvals []WaitingCall `json:"approvals"`      // oldest first
	Waiting   int           `json:"waiting"`        // number of waiting calls on this page and after it
	Next      string        `json:"next,omitempty"` // value of `after` for the next page
}

// Keep says how long an approval stays in force.
type Keep string

// The durations of an approval. Empty approves this call only.
const (
	KeepArguments Keep = "arguments" // calls to the tool with the same arguments in this session, for a day
	KeepSession   Keep = "session"   // all calls to the tool in this session, for a day
	KeepAlways    Keep = "always"    // all calls to the tool, in all sessions
)

// Decide is the request body of POST /v1/approvals/{run}.
type Decide struct {
	Approve     bool   `json:"approve"`
	Keep        Keep   `json:"keep,omitempty" schema:"enum=arguments|session|always"` // approves later calls by the same caller too, while the plugin's file and grants stay the same
	Fingerprint string `json:"fingerprint,omitempty"`                                 // the fingerprint that was shown; the request is refused if it has changed since
	Reason      string `json:"reason,omitempty"`                                      // reason for a refusal, shown to the agent, cut to about 200 characters
}

// A KeptApproval is a stored approval for later calls to a tool.
type KeptApproval struct {
	Tool       string    `json:"tool"`
	Caller     string    `json:"caller,omitempty"`      // only calls by this tool; absent: only calls by the agent
	ArgsDigest string    `json:"args_digest,omitempty"` // only calls with these arguments: their SHA-256, hexadecimal
	Session    string    `json:"session,omitempty"`     // absent: all sessions
	By         string    `json:"by"`
	At         time.Time `json:"at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"` // absent: it does not expire
	InForce    bool      `json:"in_force"`            // the plugin and its grants have not changed since the approval, and the connection it holds for has not ended
}

// KeptApprovals is the response body of GET /v1/kept_approvals.
type KeptApprovals struct {
	Kept []KeptApproval `json:"kept"` // sorted by session and tool
}
