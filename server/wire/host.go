package wire

import "time"

// Hosts is the response body of GET /v1/hosts: the servers that share an engine for
// background runs.
type Hosts struct {
	Hosts []Host `json:"hosts"` // in the order in which they joined
	// Differences are the plugins that differ between live hosts, sorted by name.
	Differences []HostDifference `json:"differences"`
}

// A Host is one of the servers that share an engine for background runs.
type Host struct {
	HostID    string       `json:"host_id"`           // id of the host, new at each start
	Name      string       `json:"name"`              // display name; not unique
	Version   string       `json:"version,omitempty"` // version of the server program
	State     HostState    `json:"state"`
	Self      bool         `json:"self,omitempty"` // this host sent the response
	Since     time.Time    `json:"since"`          // when the host joined
	RenewedAt time.Time    `json:"renewed_at"`     // time of the last heartbeat
	Running   int          `json:"running"`        // number of runs in progress
	Claimed   int          `json:"claimed"`        // number of queued runs that the host is about to start
	PerHost   int          `json:"per_host"`       // maximum number of runs that the host executes at the same time
	Plugins   []HostPlugin `json:"plugins"`        // sorted by name
}

// HostState says whether a host is alive.
type HostState string

// The states of a host. A host that has shut down is not listed.
const (
	HostLive HostState = "live"
	HostLost HostState = "lost" // its lease expired: other hosts take over its runs
)

// A HostPlugin is a plugin that a host has loaded.
type HostPlugin struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // version that the plugin declares
	Digest  string `json:"digest,omitempty"`  // SHA-256 of the plugin's file, hexadecimal
}

// A HostDifference is a plugin that differs between live hosts. A run waits for a host that
// has the run's version of the plugin.
type HostDifference struct {
	Plugin  string        `json:"plugin"`
	Builds  []PluginBuild `json:"builds"`            // most common build first
	Missing []string      `json:"missing,omitempty"` // names of the hosts without the plugin
}

// A PluginBuild is a build of a plugin, with the hosts that have it.
type PluginBuild struct {
	Version string   `json:"version,omitempty"`
	Digest  string   `json:"digest,omitempty"`
	Hosts   []string `json:"hosts"` // names of the hosts
}
