package grant

import "github.com/toolhost/toolhost/abi"

// These capabilities need no grant. Whether a call has checkpoints and messages depends
// on what kind of call it is.
var (
	checkpointCapability = ungranted("checkpoint", "the resume point of a background run")
	messagesCapability   = ungranted("messages", "messages to a background run")
	reportCapability     = ungranted("report", "status, unit of the progress and summary")
)

// ungranted returns a capability that the operator does not grant.
func ungranted(name, doc string) Capability {
	return Capability{
		Name: name, Doc: doc,
		Missing: func(abi.Needs, Grant) []string { return nil },
		Granted: func(Grant) []string { return nil },
	}
}
