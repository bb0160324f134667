package grant

import "github.com/toolhost/toolhost/abi"

// askCapability puts questions to the user.
var askCapability = flag("ask", "questions to the user",
	func(n abi.Needs) bool { return n.Ask }, func(g *Grant) *bool { return &g.Ask })
