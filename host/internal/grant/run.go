package grant

import "github.com/toolhost/toolhost/abi"

// checkpointCapability depends on the kind of call; the operator does not grant it.
var checkpointCapability = Capability{
	Name: "checkpoint", Doc: "the resume point of a background run",
	Missing: func(abi.Needs, Grant) []string { return nil },
	Granted: func(Grant) []string { return nil },
}

// messagesCapability depends on the kind of call; the operator does not grant it.
var messagesCapability = Capability{
	Name: "messages", Doc: "messages to a background run",
	Missing: func(abi.Needs, Grant) []string { return nil },
	Granted: func(Grant) []string { return nil },
}

// reportCapability is progress and status reports. It needs no grant.
var reportCapability = Capability{
	Name: "report", Doc: "status, unit of the progress and summary",
	Missing: func(abi.Needs, Grant) []string { return nil },
	Granted: func(Grant) []string { return nil },
}
