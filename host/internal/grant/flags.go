package grant

import "github.com/toolhost/toolhost/abi"

// clockCapability grants the real time, read through WASI, and sleeping.
var clockCapability = flag("clock", "the real time, and sleeping",
	func(n abi.Needs) bool { return n.Clock }, func(g *Grant) *bool { return &g.Clock })

// randomCapability grants real randomness, read through WASI.
var randomCapability = flag("random", "real randomness",
	func(n abi.Needs) bool { return n.Random }, func(g *Grant) *bool { return &g.Random })

// askCapability grants questions to the user.
var askCapability = flag("ask", "questions to the user",
	func(n abi.Needs) bool { return n.Ask }, func(g *Grant) *bool { return &g.Ask })
